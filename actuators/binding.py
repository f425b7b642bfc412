"""Verbs from real signatures: what a verb takes is read off the method that does it, so a typo is found at load.

A method is marked with `@verb(...)`. Its keyword-only parameters are the verb's arguments; each is annotated with `str`,
`int`, `float` or `bool`, and may default to None. `verbs_of` turns the marked methods of a class into VerbSpecs, `bind`
checks a runbook's arguments against one, and `undo_of` derives the action that takes a finished one back.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from actuators.action import Action, Outcome, OutcomeStatus, Scalar, VerbSpec

_MARK = "__fleetwarden_verb__"
_SCALARS: tuple[type, ...] = (str, int, float, bool)
_WORDS: Mapping[type, str] = MappingProxyType({str: "text", int: "a whole number", float: "a number", bool: "true or false"})

Method = TypeVar("Method", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class _Mark:
    verb: str
    summary: str
    undo: str | None
    takes_capacity: bool
    harmless: bool
    recovery: bool
    covers: frozenset[str]


def verb(
    name: str,
    *,
    summary: str,
    undo: str | None = None,
    takes_capacity: bool = False,
    harmless: bool = False,
    recovery: bool = False,
    covers: frozenset[str] = frozenset(),
) -> Callable[[Method], Method]:
    """Mark a method as the doing of the verb `name`. The keywords mean what they mean in VerbSpec."""
    mark = _Mark(name, summary, undo, takes_capacity, harmless, recovery, covers)

    def marked(method: Method) -> Method:
        setattr(method, _MARK, mark)
        return method

    return marked


def spec_of(method: Callable[..., Any]) -> VerbSpec:
    """The VerbSpec of a marked method. Raises TypeError when it bears no mark or a parameter's type is not a scalar."""
    mark: _Mark | None = getattr(method, _MARK, None)
    if mark is None:
        raise TypeError(f"{method!r} is not marked with @verb")
    return VerbSpec(
        verb=mark.verb,
        summary=mark.summary,
        parameters=MappingProxyType(dict(_parameters(method))),
        undo=mark.undo,
        takes_capacity=mark.takes_capacity,
        harmless=mark.harmless,
        recovery=mark.recovery,
        covers=mark.covers,
    )


def methods_of(actuator: object) -> Mapping[str, Callable[..., Any]]:
    """The marked methods of an actuator (bound) or of its class (plain), by verb."""
    found: dict[str, Callable[..., Any]] = {}
    owner = actuator if isinstance(actuator, type) else type(actuator)
    for name, member in inspect.getmembers(owner, callable):
        mark: _Mark | None = getattr(member, _MARK, None)
        if mark is not None:
            found[mark.verb] = getattr(actuator, name)
    return MappingProxyType(found)


def verbs_of(actuator: object) -> Mapping[str, VerbSpec]:
    """The VerbSpecs of an actuator or its class, by verb, from the signatures of its marked methods."""
    return MappingProxyType({name: spec_of(method) for name, method in methods_of(actuator).items()})


def bind(spec: VerbSpec, arguments: Mapping[str, object]) -> tuple[str, ...]:
    """What is wrong with `arguments` for this verb, one sentence a mistake, in a stable order. Empty: they fit."""
    return tuple(_problems(spec, arguments))


def with_defaults(spec: VerbSpec, arguments: Mapping[str, Scalar]) -> dict[str, Any]:
    """`arguments`, which `bind` found fitting, with the defaults filled in and whole numbers made floats where asked."""
    filled: dict[str, Any] = {}
    for name, (kind, default) in spec.parameters.items():
        value = arguments.get(name, default)
        filled[name] = float(value) if kind is float and isinstance(value, int) else value
    return filled


def undo_of(specs: Mapping[str, VerbSpec], action: Action, outcome: Outcome) -> Action | None:
    """The action that takes a finished one back, or None when there is nothing to take back.

    Nothing to take back: the verb has no undo, the action was not done, or it found the world already as asked (`before`
    equals `after`). The undo's arguments are those of its parameters that `before` holds: a weight goes back to what it was.
    """
    spec = specs.get(action.verb)
    if spec is None or spec.undo is None or spec.undo not in specs:
        return None
    if outcome.status is not OutcomeStatus.DONE or outcome.before == outcome.after:
        return None
    takes = specs[spec.undo].parameters
    arguments = {name: outcome.before[name] for name in takes if name in outcome.before}
    return Action(spec.undo, action.target, MappingProxyType(arguments))


def _parameters(method: Callable[..., Any]) -> Iterator[tuple[str, tuple[type, object]]]:
    for parameter in inspect.signature(method, eval_str=True).parameters.values():
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            continue
        kind = _scalar(parameter.annotation)
        if kind is None:
            raise TypeError(
                f"parameter {parameter.name!r} of {method!r} must be annotated with str, int, float or bool, "
                f"not {parameter.annotation!r}"
            )
        yield parameter.name, (kind, ... if parameter.default is inspect.Parameter.empty else parameter.default)


def _scalar(annotation: object) -> type | None:
    members = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    kinds = [kind for kind in members if kind is not type(None)]
    return kinds[0] if len(kinds) == 1 and kinds[0] in _SCALARS else None


def _problems(spec: VerbSpec, arguments: Mapping[str, object]) -> Iterator[str]:
    takes = ", ".join(spec.parameters) or "no arguments"
    for name in arguments:
        if name not in spec.parameters:
            yield f"{spec.verb} does not take {name!r}; it takes {takes}"
    for name, (kind, default) in spec.parameters.items():
        if name not in arguments:
            if default is ...:
                yield f"{spec.verb} needs {name!r} ({_WORDS[kind]})"
        elif not _fits(arguments[name], kind, default):
            yield f"{spec.verb}: {name!r} must be {_WORDS[kind]}, not {arguments[name]!r}"


def _fits(value: object, kind: type, default: object) -> bool:
    if value is None:
        return default is None
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)
