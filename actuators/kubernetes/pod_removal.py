"""Removing one pod: by deletion, by eviction within its disruption budgets, or by force.

The pod is read right before, and its uid goes with the request: a map that is behind, or a pod that was replaced meanwhile,
never costs the successor anything.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from actuators.action import Outcome
from actuators.kubernetes import claim as claims
from actuators.kubernetes.access import Access
from actuators.kubernetes.claim import Claim
from actuators.kubernetes.object_change import Refused
from actuators.kubernetes.outcomes import done, failed, in_doubt, of_error, unknown
from actuators.kubernetes.pod_state import is_ending, overdue, pod_facts
from actuators.kubernetes.reading import read_pod
from serving.kubernetes.client import path_of
from serving.kubernetes.cluster_error import ALREADY_EXISTS, CONFLICT, NOT_FOUND, TOO_MANY, ClusterError
from serving.kubernetes.cluster_map import PodRef

Json = dict[str, Any]
Check = Callable[[Json], Refused | None]
"""Why a pod, as read right now, must not be removed; None when it may."""
_MISCONFIGURED = 500
LATE_S = 60.0  # a pod that should have ended for longer is stuck: waiting for it is no repair


class How(StrEnum):
    """The ways for a pod to go."""

    DELETE = "deleted"
    EVICT = "evicted"
    FORCE = "removed by force"


@dataclass(frozen=True, slots=True)
class PodRemoval:
    """The operation `verb` on one pod. `grace_s`: seconds to end in, None for the pod's own."""

    access: Access
    verb: str
    ref: PodRef
    how: How
    check: Check
    grace_s: float | None = None

    def rehearse(self) -> Outcome:
        pod = self._live()
        stopped = self._stopped(pod)
        if stopped is not None or pod is None:
            return stopped or self._missing()
        before = pod_facts(pod)
        try:
            remove(self.access, pod, self.how, self.grace_s, dry_run=True)
        except ClusterError as error:
            return refusal_of(self.access, pod, self.how, error, read_only=True)
        return done(f"{self._name()} would be {self.how}", before, {**before, "ending": True})

    def apply(self, key: str) -> Outcome:
        known = claims.find(self.access, key, self.ref.namespace)
        if known is not None and known.verb != self.verb:
            return failed(f"the key {key!r} was already used for {known.verb} on pod {known.pod}", permanent=True)
        pod = self._live()
        if known is not None and (pod is None or pod["metadata"]["uid"] != known.uid or is_ending(pod)):
            return self._was_done(known)
        stopped = self._stopped(pod)
        if stopped is not None or pod is None:
            return stopped or self._missing()
        term = self.access.term()
        if isinstance(term, Outcome):
            return term
        return self._claimed(key, pod, term, known) or self._removed(pod)

    def look_up(self, key: str) -> Outcome:
        known = claims.find(self.access, key, self.ref.namespace)
        return look_up_claim(self.access, known, key)

    def _live(self) -> Json | None:
        return read_pod(self.access, self.ref.namespace, self.ref.name)

    def _name(self) -> str:
        return f"pod {self.ref.namespace}/{self.ref.name}"

    def _missing(self) -> Outcome:
        return failed(f"{self._name()} is gone, and its successor is not known yet")

    def _stopped(self, pod: Json | None) -> Outcome | None:
        """Why nothing is to be done to the pod as it is now: it is another one, it ends already, or the check says no."""
        if pod is None:
            return self._missing()
        facts = pod_facts(pod)
        if pod["metadata"]["uid"] != self.ref.uid:
            return failed(f"{self._name()} is another one than the map says: it was replaced meanwhile", facts)
        if is_ending(pod) and self.how is not How.FORCE:
            late = overdue(pod, self.access.client.server_now())
            if late > LATE_S:
                return failed(f"{self._name()} should have ended {late:.0f} s ago; pod.delete_stuck is for such", facts)
            return done(f"{self._name()} is ending already", facts, facts)
        refused = self.check(pod)
        return None if refused is None else failed(refused.says, facts, permanent=refused.permanent)

    def _claimed(self, key: str, pod: Json, term: int, known: Claim | None) -> Outcome | None:
        """Write down which pod this operation is about. The outcome when that cannot be done: the pod is untouched then."""
        if known is not None:
            return None
        facts = pod_facts(pod)
        claim = Claim(key, self.verb, self.ref.namespace, self.ref.name, self.ref.uid, term, facts)
        try:
            claims.make(self.access, claim, pod, f"{self._name()} is to be {self.how}")
        except ClusterError as error:
            if error.reason == ALREADY_EXISTS:
                return unknown(f"the same operation is under way: {key}", facts)
            outcome = of_error("write down what is about to be done", error, facts)
            return failed(f"{outcome.detail}; the pod was not touched", facts, permanent=outcome.permanent)
        return None

    def _removed(self, pod: Json) -> Outcome:
        before, waited = pod_facts(pod), 0.0
        while True:
            try:
                remove(self.access, pod, self.how, self.grace_s)
            except ClusterError as error:
                if error.status == TOO_MANY:
                    so_far = self.access.wait(error.retry_after, waited)
                    if so_far is not None:
                        waited = so_far
                        continue
                if is_gone(error):
                    return done(f"{self._name()} was gone already", before, {**before, "ending": True})
                return refusal_of(self.access, pod, self.how, error)
            return done(f"{self._name()} is {self.how}", before, {**before, "ending": True})

    def _was_done(self, claim: Claim) -> Outcome:
        return done(f"{self._name()} was {self.how} under this key", claim.before, {**claim.before, "ending": True})


def look_up_claim(access: Access, claim: Claim | None, key: str) -> Outcome:
    """What became of an operation on a pod. Raises ClusterError."""
    if claim is None:
        return failed(f"no pod was claimed by {key!r}: it never happened")
    pod = read_pod(access, claim.namespace, claim.pod)
    if pod is not None and pod["metadata"]["uid"] == claim.uid and not is_ending(pod):
        return failed(f"pod {claim.namespace}/{claim.pod} is as it was: it was not carried out", pod_facts(pod))
    return done(f"pod {claim.namespace}/{claim.pod} is gone or ending", claim.before, {**claim.before, "ending": True})


def remove(access: Access, pod: Json, how: How, grace_s: float | None = None, *, dry_run: bool = False) -> None:
    """Ask for the removal of exactly this pod. Raises ClusterError."""
    metadata = pod["metadata"]
    options: Json = {"preconditions": {"uid": metadata["uid"]}}
    if how is How.FORCE:
        options["gracePeriodSeconds"] = 0
    elif grace_s is not None:
        options["gracePeriodSeconds"] = max(1, round(grace_s))
    path = path_of("v1", "pods", metadata["name"], namespace=metadata["namespace"])
    if how is not How.EVICT:
        access.client.delete(path, options, dry_run=dry_run, deadline_s=access.deadline_s)
        return
    names = {"name": metadata["name"], "namespace": metadata["namespace"]}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": names, "deleteOptions": options}
    access.client.create(f"{path}/eviction", body, dry_run=dry_run, deadline_s=access.deadline_s)


def is_gone(error: ClusterError) -> bool:
    """Whether a removal failed because that very pod is not there any more."""
    return error.status == NOT_FOUND or (error.status == CONFLICT and "UID in precondition" in error.says)


def refusal_of(access: Access, pod: Json, how: How, error: ClusterError, *, read_only: bool = False) -> Outcome:
    """The outcome of a removal that did not succeed, with what a person must know of disruption budgets."""
    facts, name = pod_facts(pod), f"pod {pod['metadata']['namespace']}/{pod['metadata']['name']}"
    if how is How.EVICT and error.status == TOO_MANY:
        why = "; ".join(error.causes) or error.says
        return failed(f"{name} may not be evicted now: {why}", facts)
    if how is How.EVICT and error.status == _MISCONFIGURED and "more than one PodDisruptionBudget" in error.says:
        says = f"{name} is selected by more than one PodDisruptionBudget, and such a pod can never be evicted; remove one"
        return failed(says, facts, permanent=True)
    if not read_only and in_doubt(error):
        try:
            live = read_pod(access, pod["metadata"]["namespace"], pod["metadata"]["name"])
        except ClusterError as unread:
            return unknown(f"cannot tell whether {name} was {how}: {error.says}; {unread.says}", facts)
        if live is None or live["metadata"]["uid"] != pod["metadata"]["uid"] or is_ending(live):
            return done(f"{name} is {how}", facts, {**facts, "ending": True})
    return of_error(f"have {name} {how}", error, facts, read_only=read_only)
