"""Rollouts: restart a workload's engines one after another, or take the workload back to its last good revision."""

from collections.abc import Mapping
from typing import Any

from actuators.action import Outcome, Scalar
from actuators.binding import verb
from actuators.kubernetes.family import Family, opted_out
from actuators.kubernetes.holds import with_annotation
from actuators.kubernetes.object_change import Change, Json, ObjectChange, Refused
from actuators.kubernetes.outcomes import failed
from actuators.kubernetes.revisions import (
    BAD,
    KEPT_BAD,
    Revision,
    bad_marks,
    last_good,
    of_controller_revisions,
    of_replica_sets,
)
from actuators.kubernetes.workloads import Workload, change, find, kept_by_gitops, lost_in_rollout, rolling
from serving.fleet.entity import Entity, EntityKind
from serving.kubernetes.client import path_of
from serving.kubernetes.cluster_map import PREFIX

RESTARTED = f"{PREFIX}restarted-by"


class RolloutsActuator(Family):
    """`rollout.restart` and `rollout.rollback` on models, by the workloads that serve them."""

    kinds = dict.fromkeys(("rollout.restart", "rollout.rollback"), (EntityKind.MODEL,))

    @verb(
        "rollout.restart",
        summary="restart the model's engines one after another, the new before the old where the workload can",
        takes_capacity=True,
        covers=frozenset({"process.restart"}),
    )
    def restart(self, target: Entity, *, workload: str | None = None) -> ObjectChange | Outcome:
        """Start a rollout of the same template. A Deployment must be set to start new pods before it ends old ones."""
        found = self._workload(target, workload)
        if isinstance(found, Outcome):
            return found
        kind = found.ref.owner_kind
        return change(self._access, "rollout.restart", found, lambda live, key: _restarted(live, key, kind))

    @verb("rollout.rollback", summary="take the model's engines back to the last good revision")
    def rollback(self, target: Entity, *, workload: str | None = None) -> ObjectChange | Outcome:
        """Give the workload the template of its last good revision; its controller does the rest."""
        found = self._workload(target, workload)
        if isinstance(found, Outcome):
            return found
        revisions = self._revisions(found)
        if isinstance(revisions, Outcome):
            return revisions
        return change(self._access, "rollout.rollback", found, lambda live, _key: rolled_back(live, revisions))

    def _workload(self, target: Entity, name: str | None) -> Workload | Outcome:
        return opted_out(target, self._access) or find(self._access, target.name, name)

    def _revisions(self, workload: Workload) -> tuple[Revision, ...] | Outcome:
        """Raises ClusterError."""
        ref, client = workload.ref, self._access.client
        match ref.owner_kind:
            case "Deployment":
                path = path_of("apps/v1", "replicasets", namespace=ref.namespace)
                return of_replica_sets(client.list_all(path, deadline_s=self._access.deadline_s).items, ref.uid)
            case "StatefulSet":
                path = path_of("apps/v1", "controllerrevisions", namespace=ref.namespace)
                return of_controller_revisions(client.list_all(path, deadline_s=self._access.deadline_s).items, ref.uid)
            case kind:
                return failed(f"the warden does not know the revisions of a {kind}; roll it back by hand", permanent=True)


def rolled_back(live: Json, revisions: tuple[Revision, ...]) -> Change | Refused:
    """The plan of a rollback, from the workload and its revisions."""
    name = live["metadata"]["name"]
    facts: dict[str, Scalar] = {"workload": name, "revision": revisions[-1].number if revisions else None}
    if live["spec"].get("paused"):
        return Refused(f"the rollout of {name} is paused by somebody, who alone may go on with it", facts, permanent=True)
    good = last_good(revisions, bad_marks(live))
    if good is None:
        return Refused(f"{name} has no earlier revision that was not found bad", facts, permanent=True)
    present = revisions[-1]
    bad = [mark for mark in bad_marks(live) if mark != present.mark]
    wanted = with_annotation(live, BAD, " ".join([*bad, present.mark][-KEPT_BAD:]))
    wanted["spec"] = {**live["spec"], "template": good.template}
    says = f"{name} goes back from revision {present.number} to what revision {good.number} was{kept_by_gitops(live)}"
    return Change(wanted, facts, {"workload": name, "revision": good.number}, says)


def _restarted(live: Json, key: str, kind: str) -> Change | Refused:
    """The plan of a restart."""
    name = live["metadata"]["name"]
    facts: dict[str, Scalar] = {"workload": name, "generation": live["metadata"].get("generation")}
    refused = _not_to_be_restarted(live, name, kind)
    if refused is not None:
        return Refused(refused, facts, permanent=True)
    if rolling(live):
        return Refused(f"a rollout of {name} is under way; one at a time", facts)
    wanted = {**live, "spec": _with_mark(live["spec"], key, kind)}
    after = {**facts, "generation": (live["metadata"].get("generation") or 0) + 1}
    return Change(wanted, facts, after, f"the engines of {name} restart one after another{kept_by_gitops(live)}")


def _not_to_be_restarted(live: Json, name: str, kind: str) -> str | None:
    spec = live["spec"]
    if spec.get("paused"):
        return f"the rollout of {name} is paused by somebody, who alone may go on with it"
    lost = lost_in_rollout(spec) if kind == "Deployment" else 0
    if lost:
        how = "set maxUnavailable to 0 and maxSurge to 1 or more"
        return f"a rollout of {name} would end {lost} of its pods before new ones are ready; {how}"
    if (spec.get("updateStrategy") or {}).get("type") == "OnDelete":
        return f"{name} is updated on deletion only; restart its engines one by one"
    return None


def _with_mark(spec: Mapping[str, Any], key: str, kind: str) -> dict[str, Any]:
    """The spec with templates that differ only by an annotation, which is what starts a rollout."""
    if kind != "LeaderWorkerSet":
        return {**spec, "template": with_annotation(spec["template"], RESTARTED, key)}
    group = dict(spec["leaderWorkerTemplate"])
    for part in ("leaderTemplate", "workerTemplate"):
        if group.get(part):
            group[part] = with_annotation(group[part], RESTARTED, key)
    return {**spec, "leaderWorkerTemplate": group}
