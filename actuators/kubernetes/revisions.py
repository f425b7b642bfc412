"""Revisions of a workload, and which of them to go back to. Pure.

Deployments keep theirs as ReplicaSets, StatefulSets as ControllerRevisions. A revision that the warden rolled back from is
marked on the workload, so that going back twice does not go forth again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from actuators.kubernetes.ledger import annotations_of
from serving.kubernetes.cluster_map import PREFIX

Json = Mapping[str, Any]
BAD = f"{PREFIX}bad-revisions"
HASH = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
KEPT_BAD = 10


@dataclass(frozen=True, slots=True)
class Revision:
    """One revision. `mark` identifies its template, whatever number it has; `ready`: pods of it that are ready now."""

    number: int
    mark: str
    template: Json
    ready: int = 0


def of_replica_sets(items: Iterable[Json], deployment: str) -> tuple[Revision, ...]:
    """The revisions of the Deployment with this uid, the newest last."""
    found = []
    for one in items:
        if any(owner.get("uid") == deployment for owner in one["metadata"].get("ownerReferences") or ()):
            number = annotations_of(one).get(REVISION, "")
            labels = one["metadata"].get("labels") or {}
            ready = (one.get("status") or {}).get("readyReplicas", 0)
            if number.isdecimal():
                found.append(Revision(int(number), labels.get(HASH, one["metadata"]["name"]), _bare(one), ready))
    return tuple(sorted(found, key=lambda one: one.number))


def of_controller_revisions(items: Iterable[Json], stateful_set: str) -> tuple[Revision, ...]:
    """The revisions of the StatefulSet with this uid, the newest last. Their data is a patch of the set's template."""
    found = []
    for one in items:
        if any(owner.get("uid") == stateful_set for owner in one["metadata"].get("ownerReferences") or ()):
            template = {key: value for key, value in one["data"]["spec"]["template"].items() if key != "$patch"}
            found.append(Revision(int(one["revision"]), one["metadata"]["name"], template))
    return tuple(sorted(found, key=lambda one: one.number))


def last_good(revisions: Iterable[Revision], bad: Iterable[str]) -> Revision | None:
    """The revision to go back to: the newest before the present one that is not marked as bad, serving ones first."""
    ordered = sorted(revisions, key=lambda one: one.number)
    if not ordered:
        return None
    present = ordered[-1]
    marked = {*bad, present.mark}
    fit = [one for one in ordered if one.mark not in marked and one.template != present.template]
    serving = [one for one in fit if one.ready > 0]
    return max(serving or fit, key=lambda one: one.number, default=None)


def bad_marks(workload: Json) -> tuple[str, ...]:
    """The revisions that the warden rolled this workload back from."""
    return tuple(annotations_of(workload).get(BAD, "").split())


def _bare(replica_set: Json) -> Json:
    """The template of a ReplicaSet as its Deployment had it: without the label that tells it from its siblings."""
    template = dict(replica_set["spec"]["template"])
    metadata = dict(template.get("metadata") or {})
    metadata["labels"] = {key: value for key, value in (metadata.get("labels") or {}).items() if key != HASH}
    return {**template, "metadata": metadata}
