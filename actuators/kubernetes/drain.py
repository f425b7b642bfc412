"""One pass of draining a node: cordon, front door, evictions. Passes go on until the node is empty.

An action is short, so a pass does what can be done now and says what is left; the runbook's retries make further passes.
Each begins by looking whether a person has uncordoned the node meanwhile, which ends the drain. Nothing is evicted before
the front door sends its engine nothing new, and no budget is passed by.
"""

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from actuators.action import Outcome, OutcomeStatus, Scalar
from actuators.kubernetes.access import Access
from actuators.kubernetes.cordoning import cordon, cordon_holds
from actuators.kubernetes.front_door import Rotation
from actuators.kubernetes.holds import incident_of, with_annotation
from actuators.kubernetes.ledger import annotations_of, record_of
from actuators.kubernetes.object_change import REHEARSAL, Change, Json, ObjectChange, Refused
from actuators.kubernetes.outcomes import done, failed
from actuators.kubernetes.pod_checks import kept
from actuators.kubernetes.pod_removal import How, is_gone, refusal_of, remove
from actuators.kubernetes.pod_state import OVER, belongs_to_its_node, is_ending
from actuators.kubernetes.reading import pods_on, read_node
from serving.kubernetes.client import path_of
from serving.kubernetes.cluster_error import ClusterError
from serving.kubernetes.cluster_map import PREFIX

DRAINING = f"{PREFIX}draining"  # "ATTEMPT SECONDS": which attempt drains the node, and since when
VERB = "node.drain"
SHOWN = 5  # pods named in a message
PodKey = tuple[str, str]
DoorMaker = Callable[[str], Rotation]
"""A drain's hand at the front door, by the name of the drain."""


@dataclass(frozen=True, slots=True)
class Left:
    """A pod that is still there, and why. `hopeless`: another pass would not change that."""

    pod: str
    says: str
    hopeless: bool = False


@dataclass(frozen=True, slots=True)
class NodeDrain:
    """The operation on `node`. `only`: the pods to evict, by namespace and name; None for all that do not belong to it.

    `quiet_s`: how long to wait, from the first pass on, for requests in flight. `door` is None without a front
    door.
    """

    access: Access
    node: str
    only: frozenset[PodKey] | None
    door: DoorMaker | None
    grace_s: float | None
    quiet_s: float

    def rehearse(self) -> Outcome:
        node = read_node(self.access, self.node)
        if node is None:
            return self._node_gone()
        planned = cordon(copy.deepcopy(node), REHEARSAL)
        if isinstance(planned, Refused):
            return failed(planned.says, self._facts(node, ()), permanent=planned.permanent)
        pods = self._pods()
        before = self._facts(node, pods)
        left = [why for pod in pods if (why := self._evicted(pod, dry_run=True)) is not None]
        if left:
            return failed(f"{self.node}: {_told(left)}", before, permanent=all(one.hopeless for one in left))
        after = {**before, "unschedulable": True, "pods": 0}
        return done(f"{self.node}: would evict {len(pods)} pods", before, after)

    def apply(self, key: str) -> Outcome:
        node = read_node(self.access, self.node)
        rotation = self._rotation(key)
        if node is None:
            return self._ended(rotation, self._node_gone())
        record = record_of(node, key)
        if record is not None:
            return done(record.says, record.before, record.after)
        pods = self._pods()
        before = self._facts(node, pods)
        begun = self._begin(node, key)
        if begun.status is not OutcomeStatus.DONE:
            return self._ended(rotation, begun) if begun.permanent else begun
        waits = self._leave_rotation(rotation, key, pods)
        if waits is not None:
            return failed(f"{self.node}: {waits}; nothing was evicted", before)
        return self._evict(key, pods, before, rotation)

    def look_up(self, key: str) -> Outcome:
        node = read_node(self.access, self.node)
        if node is None:
            return self._node_gone()
        record = record_of(node, key)
        if record is not None:
            return done(record.says, record.before, record.after)
        return failed(f"{self.node} bears no finished drain {key!r}; what it evicted needs no second eviction")

    def _begin(self, node: Json, key: str) -> Outcome:
        """Hold the node for the incident and note since when it is drained; writes only in the first pass of an attempt."""
        attempt = attempt_of(key)
        ours = any(incident_of(hold) == incident_of(key) for hold in cordon_holds(node))
        closed = bool(node["spec"].get("unschedulable"))
        if closed and (ours or not cordon_holds(node)) and _draining(node, attempt) is not None:
            return done("begun before", {}, {})
        now = self.access.client.server_now()

        def plan(live: Json, of: str) -> Change | Refused:
            if _draining(live, attempt) is not None and not live["spec"].get("unschedulable"):
                return Refused(f"{self.node} was uncordoned by somebody in mid-drain; that stands", {}, permanent=True)
            planned = cordon(live, of)
            if isinstance(planned, Refused):
                return planned
            marked = with_annotation(planned.wanted, DRAINING, f"{attempt} {now:.0f}")
            return Change(marked, planned.before, planned.after, f"{self.node} is being drained")

        path = path_of("v1", "nodes", self.node)
        return ObjectChange(self.access, "node.drain.begin", path, self.node, plan).apply(f"{key}#begin")

    def _leave_rotation(self, rotation: Rotation | None, key: str, pods: Iterable[Json]) -> str | None:
        """Take the engines of these pods out of rotation. What has to be waited for; None when all may go."""
        if rotation is None:
            return None
        engines = self._engines(pods)
        refused = rotation.take_out(engines)
        if refused is not None:
            return refused
        in_flight = rotation.in_flight(engines)
        node = read_node(self.access, self.node) if in_flight else None
        since = None if node is None else _draining(node, attempt_of(key))
        if since is not None and self.access.client.server_now() - since < self.quiet_s:
            return f"waits for {in_flight} requests in flight"
        return None

    def _evict(self, key: str, pods: list[Json], before: Mapping[str, Scalar], rotation: Rotation | None) -> Outcome:
        left: list[Left] = []
        for pod in pods:
            if isinstance(permitted := self.access.term(), Outcome):
                return permitted
            why = self._evicted(pod)
            if why is not None:
                left.append(why)
        still = {pod["metadata"]["uid"]: pod for pod in self._pods()}
        named = {one.pod for one in left}
        left += [Left(_name(pod), "is ending") for pod in still.values() if _name(pod) not in named]
        after = {**before, "unschedulable": True, "pods": len(still)}
        if still:
            says = f"{self.node}: {len(_uids(pods) - set(still))} of {len(pods)} pods are gone; {_told(left)}"
            permanent = all(one.hopeless for one in left)
            return Outcome(OutcomeStatus.FAILED, says, before, after, permanent=permanent)
        waits = None if rotation is None else rotation.put_back()
        if waits is not None:
            return Outcome(OutcomeStatus.FAILED, f"{self.node} is empty, but {waits}", before, after)
        return self._finish(key, before, after)

    def _finish(self, key: str, before: Mapping[str, Scalar], after: Mapping[str, Scalar]) -> Outcome:
        def plan(live: Json, _key: str) -> Change:
            return Change(with_annotation(live, DRAINING, ""), before, after, f"{self.node} is drained")

        path = path_of("v1", "nodes", self.node)
        return ObjectChange(self.access, VERB, path, self.node, plan).apply(key)

    def _evicted(self, pod: Json, *, dry_run: bool = False) -> Left | None:
        """Evict one pod. Why it stays, if it does; a pod that is ending is waited for."""
        if is_ending(pod):
            return None
        refused = kept(pod)
        if refused is not None:
            return Left(_name(pod), refused.says, hopeless=True)
        engine = self.access.map().engine_of.get(_key(pod))
        if engine is not None and any(one.name == engine for one in self.access.map().opted_out):
            return Left(_name(pod), f"engine {engine} asks to be left alone", hopeless=True)
        try:
            remove(self.access, pod, How.EVICT, self.grace_s, dry_run=dry_run)
        except ClusterError as error:
            if is_gone(error):
                return None
            outcome = refusal_of(self.access, pod, How.EVICT, error, read_only=dry_run)
            gone = outcome.status is OutcomeStatus.DONE
            return None if gone else Left(_name(pod), outcome.detail, hopeless=outcome.permanent)
        return None

    def _pods(self) -> list[Json]:
        """The pods that have to go and are still there."""
        found = [pod for pod in pods_on(self.access, self.node) if not belongs_to_its_node(pod)]
        found = [pod for pod in found if (pod.get("status") or {}).get("phase") not in OVER]
        return found if self.only is None else [pod for pod in found if _key(pod) in self.only]

    def _engines(self, pods: Iterable[Json]) -> list[str]:
        known = self.access.map().engine_of
        return sorted({known[_key(pod)] for pod in pods if _key(pod) in known})

    def _facts(self, node: Json, pods: Iterable[Json]) -> dict[str, Scalar]:
        return {"unschedulable": bool(node["spec"].get("unschedulable")), "pods": len(tuple(pods))}

    def _rotation(self, key: str) -> Rotation | None:
        return None if self.door is None else self.door(f"{attempt_of(key)}/{VERB}/{self.node}")

    def _ended(self, rotation: Rotation | None, outcome: Outcome) -> Outcome:
        """The outcome of a drain that does not go on: what it took out of rotation is given back first."""
        waits = None if rotation is None else rotation.put_back()
        if waits is None:
            return outcome
        return failed(f"{outcome.detail}; its engines are still out of rotation: {waits}", outcome.after)

    def _node_gone(self) -> Outcome:
        says = f"node {self.node} is gone; what ran there is replaced by its workloads (node.replace_lost hurries that)"
        return failed(says, permanent=True)


def attempt_of(key: str) -> str:
    """The incident and attempt that an operation belongs to: the same for all tries of its step."""
    return "/".join(key.split("/")[:2])


def _uids(pods: Iterable[Json]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods}


def _draining(node: Json, attempt: str) -> float | None:
    """Since when this attempt drains the node, in Unix seconds; None when it does not."""
    who, _, since = annotations_of(node).get(DRAINING, "").rpartition(" ")
    return float(since) if who == attempt and since.isdecimal() else None


def _key(pod: Json) -> PodKey:
    return pod["metadata"]["namespace"], pod["metadata"]["name"]


def _name(pod: Json) -> str:
    return "/".join(_key(pod))


def _told(left: list[Left]) -> str:
    shown = "; ".join(f"{one.pod}: {one.says}" for one in left[:SHOWN])
    return f"{len(left)} are left: {shown}" + (f"; and {len(left) - SHOWN} more" if len(left) > SHOWN else "")
