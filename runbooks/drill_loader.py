"""Loading drills: the shipped ones and directories of a user's own, strictly, with every mistake at once.

A drill of a later directory takes the place of an earlier one of its name.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from runbooks.conditions import ConditionError, did_you_mean
from runbooks.drill import ANY, BUSIEST, DOOR, NOTHING, ON_TARGET, Drill, FaultOrder, FleetKind
from runbooks.drill_conditions import condition
from serving.faults.catalogue import FaultUsageError, fault_named
from serving.fleet.entity import EntityKind
from serving.virtual.faults.naming import meant
from serving.yaml_file import FileError, Problem, YamlFile, load_file

SHIPPED = Path(__file__).parent / "drills"
Place = tuple[str | int, ...]
FaultCheck = Callable[[FaultOrder], None]
"""Raises FaultUsageError when a kind of fleet has no such fault, target or parameter."""


def check_local(order: FaultOrder) -> None:
    """Whether the local fleet has this fault (serving/faults/catalogue.yaml). Raises FaultUsageError."""
    fault = fault_named(order.fault)
    fault.bind(order.parameters)
    if order.target == DOOR and fault.load is None:
        raise FaultUsageError(f"{order.fault} breaks an engine; only loads go to the front door")


def check_virtual(order: FaultOrder) -> None:
    """Whether a fleet in virtual time has this fault (serving.virtual.faults). Raises FaultUsageError."""
    rule = order.target.removeprefix("any ").partition("/")[0]
    kind = {ANY: EntityKind.ENGINE, BUSIEST: EntityKind.ENGINE, DOOR: EntityKind.GATEWAY}.get(order.target)
    if kind is not None or rule in set(EntityKind):  # of what is no kind at all, something else is said
        meant(order.fault, order.parameters, kind or EntityKind(rule))


CHECKS: Mapping[FleetKind, FaultCheck] = MappingProxyType(
    {FleetKind.SIMULATED: check_local, FleetKind.VLLM: check_local, FleetKind.VIRTUAL: check_virtual}
)


@dataclass(frozen=True, slots=True)
class Known:
    """What a drill may speak of. `checks`: by kind of fleet, what knows its faults; a kind without one is not checked."""

    causes: frozenset[str]
    verbs: frozenset[str]
    checks: Mapping[FleetKind, FaultCheck] = field(default_factory=lambda: CHECKS)


@dataclass(frozen=True, slots=True)
class LoadedDrill:
    """One drill and where it came from."""

    drill: Drill
    file: Path


def load_drills(
    known: Known, directories: Sequence[Path] = (), *, shipped: Path | None = SHIPPED
) -> Mapping[str, LoadedDrill]:
    """All drills by name: the shipped ones (unless None), then `directories`. Raises FileError with every mistake."""
    problems: list[Problem] = []
    found: dict[str, LoadedDrill] = {}
    for directory in (*((shipped,) if shipped else ()), *directories):
        here: dict[str, LoadedDrill] = {}
        for loaded, file in _directory(directory, known, problems):
            if loaded.drill.name in here:
                what = f"is the name of the drill in {here[loaded.drill.name].file.name} too"
                problems.append(file.problem(("name",), what, loaded.drill.name))
            here[loaded.drill.name] = loaded
        found |= here
    if problems:
        raise FileError(problems)
    return MappingProxyType(dict(sorted(found.items())))


def load_drill(path: Path, known: Known) -> Drill:
    """One drill. Raises FileError with every mistake of the file."""
    return _checked(load_file(path), known)


def _directory(directory: Path, known: Known, problems: list[Problem]) -> Iterator[tuple[LoadedDrill, YamlFile]]:
    if not directory.is_dir():
        problems.append(Problem(str(directory), 0, "", "is not a directory of drills"))
        return
    for path in sorted(p for p in directory.iterdir() if p.suffix in {".yaml", ".yml"}):
        try:
            file = load_file(path)
            yield LoadedDrill(_checked(file, known), path), file
        except FileError as refused:
            problems.extend(refused.problems)


def _checked(file: YamlFile, known: Known) -> Drill:
    drill = file.validated(Drill)
    found = [file.problem(place, what, value) for place, what, value in mistakes(drill, known)]
    if found:
        raise FileError(found)
    return drill


def mistakes(drill: Drill, known: Known) -> Iterator[tuple[Place, str, object]]:
    """Everything that is wrong with `drill` beyond its shape: place, what, and what stands there. Pure."""
    yield from _faults(drill, known)
    yield from _conditions(drill)
    yield from _expectations(drill, known)
    yield from _spans(drill)


def _faults(drill: Drill, known: Known) -> Iterator[tuple[Place, str, object]]:
    kinds = set(EntityKind)
    for number, order in enumerate(drill.faults):
        kind = order.target.removeprefix("any ").partition("/")[0]
        named = order.target.startswith("any ") or "/" in order.target
        if named and kind not in kinds:
            yield ("faults", number, "target"), f"names no kind of entity{did_you_mean(kind, kinds)}", order.target
        for fleet in drill.fleet.kinds:
            try:
                known.checks.get(fleet, _unchecked)(order)
            except FaultUsageError as refused:
                yield ("faults", number, "fault"), str(refused), order.fault
                break  # other kinds of fleet would mostly say the same in other words


def _unchecked(_order: FaultOrder) -> None:
    """Nobody here knows the faults of that kind of fleet: it says so itself when the drill is run."""


def _conditions(drill: Drill) -> Iterator[tuple[Place, str, object]]:
    texts: list[tuple[Place, str]] = [(("steady", "require", n), text) for n, text in enumerate(drill.steady.require)]
    texts += [(("abort", n, "when"), each.when) for n, each in enumerate(drill.abort)]
    for place, text in texts:
        try:
            condition(text)
        except ConditionError as refused:
            yield place, f"line {refused.line}, column {refused.column}: {refused.what}", text


def _expectations(drill: Drill, known: Known) -> Iterator[tuple[Place, str, object]]:
    for number, each in enumerate(drill.expect.incidents):
        place: Place = ("expect", "incidents", number)
        yield from _one_of((*place, "cause"), each.cause, known.causes, "a known cause")
        yield from _one_of((*place, "on"), each.on, {ON_TARGET, *EntityKind}, f"`{ON_TARGET}` or a kind of entity")
        if each.first_action is not None:
            yield from _one_of((*place, "first_action"), each.first_action, {NOTHING, *known.verbs}, "a known verb")
        if each.of is not None and each.of > len(drill.faults):
            yield (*place, "of"), f"is no fault of this drill, which has {len(drill.faults)}", each.of
        if each.on == ON_TARGET and drill.faults[min(drill.fault_of(number), len(drill.faults) - 1)].target == DOOR:
            yield (*place, "on"), "is needed: the front door is only where the load goes; say `on: model`, or which", each.on
        if each.detected_within > each.recovered_within:
            yield (*place, "recovered_within"), "is shorter than `detected_within`", each.recovered_within
    for number, side in enumerate(drill.expect.tolerated):
        place = ("expect", "tolerated", number)
        yield from _one_of((*place, "cause"), side.cause, known.causes, "a known cause")
        if side.on is not None:
            yield from _one_of((*place, "on"), side.on, set(EntityKind), "a kind of entity")


def _one_of(place: Place, word: str, known: Iterable[str], what: str) -> Iterator[tuple[Place, str, object]]:
    names = set(map(str, known))
    if word not in names:
        yield place, f"is not {what}{did_you_mean(word, names)}", word


def _spans(drill: Drill) -> Iterator[tuple[Place, str, object]]:
    longest = max((each.recovered_within for each in drill.expect.incidents), default=0.0)
    if longest > drill.limits.watch:
        what = f"is over before the {longest:g} s in which recovery is expected"
        yield ("limits", "watch"), what, drill.limits.watch
    for number, order in enumerate(drill.faults):
        if order.after >= drill.limits.watch:
            yield ("faults", number, "after"), "is after the end of the watch", order.after
