"""The registry: a set of actuators addressed by verb, itself an actuator."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from actuators.action import Action, Actuator, Outcome, OutcomeStatus, VerbSpec
from actuators.binding import bind


class ActuatorRegistry:
    """Sends each action to the actuator that offers its verb.

    Unknown verbs and arguments that do not fit fail before any actuator is asked. An actuator that breaks its promise
    and raises is turned into an outcome: unknown where the world may have been touched, failed where it was only read.

    Raises ValueError at construction when two actuators offer the same verb, or an undo names a verb nobody offers.
    """

    def __init__(self, actuators: Iterable[Actuator]) -> None:
        owners: dict[str, Actuator] = {}
        specs: dict[str, VerbSpec] = {}
        for actuator in actuators:
            for name, spec in actuator.verbs.items():
                if name in owners:
                    raise ValueError(f"verb {name!r} is offered by both {owners[name]!r} and {actuator!r}")
                owners[name], specs[name] = actuator, spec
        for spec in specs.values():
            if spec.undo is not None and spec.undo not in specs:
                raise ValueError(f"verb {spec.verb!r} is undone by {spec.undo!r}, which no actuator offers")
        self._owners = owners
        self._specs: Mapping[str, VerbSpec] = MappingProxyType(specs)

    @property
    def verbs(self) -> Mapping[str, VerbSpec]:
        return self._specs

    def owner_of(self, verb: str) -> Actuator | None:
        """The actuator that offers `verb`, if any."""
        return self._owners.get(verb)

    def rehearse(self, action: Action) -> Outcome:
        return self._ask(action, lambda owner: owner.rehearse(action), OutcomeStatus.FAILED)

    def apply(self, action: Action, key: str) -> Outcome:
        return self._ask(action, lambda owner: owner.apply(action, key), OutcomeStatus.UNKNOWN)

    def look_up(self, action: Action, key: str) -> Outcome:
        return self._ask(action, lambda owner: owner.look_up(action, key), OutcomeStatus.UNKNOWN)

    def _ask(self, action: Action, question: Callable[[Actuator], Outcome], when_raised: OutcomeStatus) -> Outcome:
        owner = self._owners.get(action.verb)
        if owner is None:
            known = ", ".join(sorted(self._specs)) or "none"
            return Outcome(OutcomeStatus.FAILED, f"no actuator offers {action.verb!r}; known verbs: {known}", permanent=True)
        problems = bind(self._specs[action.verb], action.arguments)
        if problems:
            return Outcome(OutcomeStatus.FAILED, "; ".join(problems), permanent=True)
        try:
            return question(owner)
        except Exception as error:  # noqa: BLE001 - actuators promise not to raise; a broken one must not stop the loop
            return Outcome(when_raised, f"{action.verb} raised {type(error).__name__}: {error}")
