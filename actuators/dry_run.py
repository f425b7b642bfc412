"""Dry run: a mode of every actuator in which nothing changes.

`DryRun(actuator)` is an actuator with the same verbs. Its `apply` rehearses: it reads the live state, shows from what to
what, and fails where the act would fail. A harmless verb (a probe) is really carried out, since it changes nothing.
"""

from collections.abc import Mapping
from dataclasses import replace

from actuators.action import Action, Actuator, Outcome, VerbSpec

PREFIX = "dry run: "


class DryRun:
    """Wraps an actuator so that `apply` only rehearses."""

    def __init__(self, actuator: Actuator) -> None:
        self._actuator = actuator

    @property
    def verbs(self) -> Mapping[str, VerbSpec]:
        return self._actuator.verbs

    def rehearse(self, action: Action) -> Outcome:
        return _marked(self._actuator.rehearse(action))

    def apply(self, action: Action, key: str) -> Outcome:
        if self._is_harmless(action):
            return self._actuator.apply(action, key)
        return _marked(self._actuator.rehearse(action))

    def look_up(self, action: Action, key: str) -> Outcome:
        # The operation may date from before dry run was switched on, so the live world is asked; what was only rehearsed
        # left no trace there and is rightly answered "it never happened".
        return self._actuator.look_up(action, key)

    def _is_harmless(self, action: Action) -> bool:
        spec = self._actuator.verbs.get(action.verb)
        return spec is not None and spec.harmless


def _marked(outcome: Outcome) -> Outcome:
    return outcome if outcome.detail.startswith(PREFIX) else replace(outcome, detail=PREFIX + outcome.detail)
