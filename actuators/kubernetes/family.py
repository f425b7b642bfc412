"""A family of verbs whose methods make operations, and what an operation can do: be rehearsed, applied, looked up."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

from actuators.action import Action, Outcome, VerbSpec
from actuators.binding import bind, methods_of, verbs_of, with_defaults
from actuators.kubernetes.access import Access
from actuators.kubernetes.ledger import LedgerUnreadableError
from actuators.kubernetes.outcomes import failed, of_error, unknown
from serving.fleet.entity import Entity, EntityKind
from serving.kubernetes.cluster_error import ClusterError


class Operation(Protocol):
    """One action on one target, with all that is needed to carry it out. May raise ClusterError from reads only."""

    def rehearse(self) -> Outcome:
        """As Actuator.rehearse: with the server's own dry run, where there is something to write."""
        ...

    def apply(self, key: str) -> Outcome:
        """As Actuator.apply."""
        ...

    def look_up(self, key: str) -> Outcome:
        """As Actuator.look_up."""
        ...


class Family:
    """An actuator by its marked methods: each takes the target and the verb's arguments, and makes an operation of it.

    A method may return an Outcome instead, when it sees that there is nothing to be made. `kinds` says on which kinds of
    entities each verb acts.
    """

    kinds: ClassVar[Mapping[str, tuple[EntityKind, ...]]] = {}

    def __init__(self, access: Access) -> None:
        self._access = access
        self._specs = verbs_of(self)
        self._makers: Mapping[str, Callable[..., Any]] = methods_of(self)

    @property
    def verbs(self) -> Mapping[str, VerbSpec]:
        return self._specs

    def rehearse(self, action: Action) -> Outcome:
        return self._with(action, lambda operation: operation.rehearse(), when_raised=failed)

    def apply(self, action: Action, key: str) -> Outcome:
        return self._with(action, lambda operation: operation.apply(key), when_raised=unknown)

    def look_up(self, action: Action, key: str) -> Outcome:
        return self._with(action, lambda operation: operation.look_up(key), when_raised=unknown, when_unread=unknown)

    def _with(
        self,
        action: Action,
        doing: Callable[[Operation], Outcome],
        *,
        when_raised: Callable[[str], Outcome],
        when_unread: Callable[[str], Outcome] | None = None,
    ) -> Outcome:
        problems = self._problems(action)
        if problems:
            return failed("; ".join(problems), permanent=True)
        what = f"{action.verb} on {action.target}"
        try:
            made = self._makers[action.verb](action.target, **with_defaults(self._specs[action.verb], action.arguments))
            return made if isinstance(made, Outcome) else doing(made)
        except ClusterError as error:  # of a read: writes answer for themselves
            outcome = of_error(f"read what {what} needs", error, read_only=True)
            return outcome if when_unread is None or outcome.permanent else when_unread(outcome.detail)
        except LedgerUnreadableError as error:
            return failed(f"{what}: {error}", permanent=True)
        except Exception as error:  # noqa: BLE001 - an actuator returns outcomes; what is not foreseen has an unknown one
            return when_raised(f"{what} raised {type(error).__name__}: {error}")

    def _problems(self, action: Action) -> tuple[str, ...]:
        spec = self._specs.get(action.verb)
        if spec is None:
            return (f"{action.verb} is not a verb here: {', '.join(self._specs)}",)
        wanted = self.kinds[action.verb]
        problems = bind(spec, action.arguments)
        if action.target.kind not in wanted:
            problems = (*problems, f"{action.verb} acts on a {' or a '.join(wanted)}, not on {action.target}")
        return problems


def opted_out(target: Entity, access: Access) -> Outcome | None:
    """The failure when somebody asked to leave the target alone; None when nobody did."""
    if target in access.map().opted_out:
        return failed(f"{target} is opted out of the warden's care by a label or annotation", permanent=True)
    return None
