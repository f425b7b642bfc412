"""Scaling: how many engines a workload has, within bounds, and never against an autoscaler that owns it."""

from dataclasses import dataclass

from actuators.action import Outcome, Scalar
from actuators.binding import verb
from actuators.kubernetes.autoscalers import Autoscaler, owner_of
from actuators.kubernetes.family import Family, opted_out
from actuators.kubernetes.object_change import Change, Json, ObjectChange, Refused
from actuators.kubernetes.outcomes import failed
from actuators.kubernetes.pod_state import controller_of
from actuators.kubernetes.workloads import Workload, change, find, kept_by_gitops
from serving.fleet.entity import Entity, EntityKind
from serving.kubernetes.decoding import asks_to_be_left

VERB = "workload.scale"


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many engines there may be; no upper bound when `most` is None."""

    least: int
    most: int | None

    def refusal(self, replicas: int) -> str | None:
        """Why so many are not allowed; None when they are."""
        if replicas < self.least:
            return f"{replicas} are fewer than the {self.least} that must stay"
        if self.most is not None and replicas > self.most:
            return f"{replicas} are more than the {self.most} that are allowed"
        return None


class ScalingActuator(Family):
    """`workload.scale` on models."""

    kinds = {VERB: (EntityKind.MODEL,)}  # noqa: RUF012 - read only

    @verb(VERB, summary="change how many engines a workload of the model has", undo=VERB)
    def scale(
        self,
        target: Entity,
        *,
        replicas: int,
        least: int = 1,
        most: int | None = None,
        workload: str | None = None,
        through_autoscaler: bool = False,
    ) -> ObjectChange | Outcome:
        """Set the number of replicas, from `least` to `most`.

        Where a HorizontalPodAutoscaler owns the workload this is refused, unless `through_autoscaler`: then its least number
        is set, and it goes on deciding above that. What KEDA owns is always left to KEDA.
        """
        refusal = Bounds(least, most).refusal(replicas)
        if refusal is not None:
            return failed(refusal, permanent=True)
        found = opted_out(target, self._access) or find(self._access, target.name, workload)
        if isinstance(found, Outcome):
            return found
        owner = owner_of(self._access, found.ref)
        if owner is not None:
            return self._through(owner, found, replicas, told_to=through_autoscaler)
        if through_autoscaler:
            return failed(f"{found.name} has no autoscaler to go through", permanent=True)
        return change(self._access, VERB, found, lambda live, _key: _scaled(live, replicas))

    def _through(self, owner: Autoscaler, found: Workload, replicas: int, *, told_to: bool) -> ObjectChange | Outcome:
        if owner.keda is not None or owner.path is None:
            return failed(f"{found.name} is scaled by {owner}; change its minReplicaCount there", permanent=True)
        if not told_to:
            says = f"{found.name} is scaled by {owner}, which would undo this; tell the warden to go through_autoscaler"
            return failed(says, permanent=True)
        name = found.ref.name
        return ObjectChange(self._access, VERB, owner.path, str(owner), lambda live, _key: _least(live, replicas, name))


def _scaled(live: Json, replicas: int) -> Change | Refused:
    name, now = live["metadata"]["name"], live["spec"].get("replicas", 1)
    before: dict[str, Scalar] = {"workload": name, "replicas": now, "through_autoscaler": False}
    wanted = {**live, "spec": {**live["spec"], "replicas": replicas}}
    says = f"{name} is to have {replicas} engines instead of {now}{kept_by_gitops(live)}"
    return Change(wanted, before, {**before, "replicas": replicas}, says)


def _least(live: Json, replicas: int, workload: str) -> Change | Refused:
    spec, name = live["spec"], live["metadata"]["name"]
    now = spec.get("minReplicas", 1)
    before: dict[str, Scalar] = {"workload": workload, "replicas": now, "through_autoscaler": True}
    if asks_to_be_left(live):
        return Refused(f"{name} asks to be left alone", before, permanent=True)
    if controller_of(live) is not None:
        return Refused(f"{name} is kept by something above it, which would take the change back", before, permanent=True)
    if replicas > spec["maxReplicas"]:
        return Refused(f"{name} allows {spec['maxReplicas']} at most; {replicas} were asked for", before, permanent=True)
    wanted = {**live, "spec": {**spec, "minReplicas": replicas}}
    says = f"{name} keeps at least {replicas} engines of {workload} instead of {now}"
    return Change(wanted, before, {**before, "replicas": replicas}, says)
