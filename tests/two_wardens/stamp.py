"""An actuator with a middle: each action is two writes to a node, and each write is one that must happen once.

It keeps the rules that make a late write harmless. A write names the version of the node that was read before, so the API
server refuses it when anybody wrote to that node in between. It bears the term, and a node that bears a later one is left
alone. And looking up what became of an operation leaves a mark on the node first: whatever is still on its way is refused
from then on, so that "it did not happen" stays true.
"""

import secrets
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from actuators.action import Action, Outcome, OutcomeStatus, VerbSpec
from agent.election.mandate import Elector, still_leads
from serving.clock import Clock
from serving.kubernetes.client import ClusterClient, path_of
from serving.kubernetes.cluster_error import CONFLICT, ClusterError

VERB = "stamp.node"
PREFIX = "two-wardens.fleetwarden.dev"
TERM = f"{PREFIX}/term"
FENCE = f"{PREFIX}/fence"
PARTS = (1, 2)
TRIES = 5

Reached = Callable[[str], None]


def stamp_name(item: int, part: int) -> str:
    """The annotation that one write of one item makes."""
    return f"{PREFIX}/item-{item:05d}.{part}"


class StampActuator:
    """Stamps nodes. `reached` is called at each point of an action: read, checked, sent. `pause`: seconds a write takes."""

    def __init__(
        self, client: ClusterClient, elector: Elector, clock: Clock, *, pause: float, deadline: float, reached: Reached
    ) -> None:
        self._client = client
        self._elector = elector
        self._clock = clock
        self._pause = pause
        self._deadline = deadline
        self._reached = reached

    @property
    def verbs(self) -> Mapping[str, VerbSpec]:
        return MappingProxyType({VERB: VerbSpec(VERB, "stamp a node twice", {"item": (int, ...)})})

    def rehearse(self, action: Action) -> Outcome:
        return Outcome(OutcomeStatus.DONE, f"would stamp {action.target}")

    def apply(self, action: Action, key: str) -> Outcome:
        mandate = self._elector.mandate()
        if mandate is None:
            return _failed("the leadership ended before anything was touched")
        try:
            for part in PARTS:
                refused = self._stamp(action, key, part, mandate.term)
                if refused is not None:
                    return refused
        except ClusterError as error:
            status = OutcomeStatus.FAILED if error.answered or not error.reached else OutcomeStatus.UNKNOWN
            return Outcome(status, f"{error.reason}: {error}")
        return Outcome(OutcomeStatus.DONE, f"stamped {action.target} twice")

    def look_up(self, action: Action, key: str) -> Outcome:
        mandate = self._elector.mandate()
        if mandate is None:
            return Outcome(OutcomeStatus.UNKNOWN, "not leading, so not looked up")
        try:
            found = self._fenced(action, mandate.term)
        except ClusterError as error:
            return Outcome(OutcomeStatus.UNKNOWN, f"{error.reason}: {error}")
        if found is None:
            return Outcome(OutcomeStatus.UNKNOWN, f"{action.target} keeps changing, or bears a later term")
        if all(_name(action, part) in found for part in PARTS):
            return Outcome(OutcomeStatus.DONE, f"{action.target} was stamped twice")
        return _failed(f"{key} never came to its end, and what is on its way is refused from now on")

    def _stamp(self, action: Action, key: str, part: int, term: int) -> Outcome | None:
        """One write; None once it is there."""
        version, annotations = self._read(action)
        if _name(action, part) in annotations:
            return None
        if int(annotations.get(TERM, 0)) > term:
            return _failed(f"{action.target} bears a later term")
        self._reached("read")
        self._clock.sleep(self._pause)
        if not still_leads(self._elector, term, self._clock.monotonic(), self._deadline):
            return _failed("the leadership ended in the middle")
        self._reached("checked")
        self._write(action, version, {_name(action, part): key, TERM: str(term)})
        self._reached("sent")
        return None

    def _fenced(self, action: Action, term: int) -> Mapping[str, str] | None:
        """The node's annotations with our mark among them; None when that could not be had."""
        for _ in range(TRIES):
            version, annotations = self._read(action)
            mandate = self._elector.mandate()
            if int(annotations.get(TERM, 0)) > term or mandate is None or mandate.term != term:
                return None
            try:
                self._write(action, version, {FENCE: secrets.token_hex(4), TERM: str(term)})
            except ClusterError as error:
                if error.status != CONFLICT:
                    raise
            else:
                return annotations
        return None

    def _read(self, action: Action) -> tuple[str, dict[str, str]]:
        metadata = self._client.get(_path(action), deadline_s=self._deadline)["metadata"]
        return str(metadata["resourceVersion"]), dict(metadata.get("annotations") or {})

    def _write(self, action: Action, version: str, annotations: Mapping[str, str]) -> None:
        body: dict[str, Any] = {"metadata": {"resourceVersion": version, "annotations": dict(annotations)}}
        self._client.patch(_path(action), body, deadline_s=self._deadline)


def _path(action: Action) -> str:
    return path_of("v1", "nodes", action.target.name)


def _name(action: Action, part: int) -> str:
    item = action.arguments["item"]
    assert isinstance(item, int)
    return stamp_name(item, part)


def _failed(says: str) -> Outcome:
    return Outcome(OutcomeStatus.FAILED, says)
