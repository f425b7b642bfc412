"""Loading runbooks: the shipped library and directories of a user's own, strictly, with every mistake at once.

A runbook of a later directory takes the place of an earlier one that has its name or its cause. Within one directory a
name and a cause appear once, so that it is never a matter of luck which runbook is followed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from actuators.action import VerbSpec
from runbooks.lint import Known, missing_verbs, mistakes, out_of_reach
from runbooks.runbook import UNDO, Runbook
from serving.telemetry.registry import SignalKind, load_registry
from serving.yaml_file import FileError, Problem, YamlFile, load_file

LIBRARY = Path(__file__).parent / "library"


@dataclass(frozen=True, slots=True)
class Loaded:
    """One runbook, where it came from, what it took the place of, and which of its steps no actuator here can do."""

    runbook: Runbook
    file: Path
    instead_of: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunbookLibrary:
    """All runbooks in force, by cause: there is at most one for each.

    `out_of_reach` says of each shipped runbook that is not in force which verbs are missing here.
    """

    by_cause: Mapping[str, Loaded]
    out_of_reach: tuple[str, ...] = ()

    def for_cause(self, cause: str) -> Runbook | None:
        """The runbook for `cause`, if there is one."""
        loaded = self.by_cause.get(cause)
        return loaded.runbook if loaded else None

    def named(self, name: str) -> Loaded | None:
        """The runbook called `name`, if it is in force."""
        return next((loaded for loaded in self.by_cause.values() if loaded.runbook.name == name), None)

    @property
    def runbooks(self) -> tuple[Runbook, ...]:
        """All runbooks in force, by name."""
        return tuple(sorted((loaded.runbook for loaded in self.by_cause.values()), key=lambda runbook: runbook.name))


def gauges() -> frozenset[str]:
    """The signals whose newest value means something by itself; counters and histograms are read through `slo`."""
    return frozenset(name for name, spec in load_registry().signals.items() if spec.kind is SignalKind.GAUGE)


def load_library(
    verbs: Mapping[str, VerbSpec],
    causes: Iterable[str],
    directories: Sequence[Path] = (),
    *,
    signals: Iterable[str] | None = None,
    shipped: Path | None = LIBRARY,
) -> RunbookLibrary:
    """The shipped library (unless `shipped` is None) and then `directories`, in order.

    `signals` are all that conditions may ask for (default: the gauges of the registry). A shipped runbook that cannot do
    without a verb that nobody here offers is left out: what it would repair is then for people. Raises FileError with every
    mistake of every file.
    """
    known = Known(verbs, frozenset(causes), gauges() if signals is None else frozenset(signals))
    problems: list[Problem] = []
    in_force: list[Loaded] = []
    absent: list[str] = []
    for directory in (*((shipped,) if shipped else ()), *directories):
        read = _directory(directory, known, problems, absent if directory == shipped else None)
        for loaded in read:
            given_way = [o for o in in_force if _same(o.runbook, loaded.runbook)]
            in_force = [o for o in in_force if o not in given_way]
            instead_of = tuple(f"{o.runbook.name} ({o.file})" for o in given_way)
            in_force.append(Loaded(loaded.runbook, loaded.file, instead_of, loaded.left_out))
    if problems:
        raise FileError(problems)
    return RunbookLibrary(MappingProxyType({loaded.runbook.cause: loaded for loaded in in_force}), tuple(absent))


def load_runbook(path: Path, known: Known) -> Runbook:
    """One runbook, without what is out of reach. Raises FileError with every mistake of the file."""
    file = load_file(path)
    return _within_reach(_checked(file, file.validated(Runbook), known), known)[0]


def runbook_files(directory: Path) -> list[Path]:
    """The files of `directory` that hold a runbook each, in the order in which they are read."""
    return sorted(path for path in directory.iterdir() if path.suffix in {".yaml", ".yml"})


def _within_reach(runbook: Runbook, known: Known) -> tuple[Runbook, tuple[str, ...]]:
    """The runbook without the steps that are done only in some cases (`when`) and that no actuator offers; and those."""
    gone = {step.id: step.do for step in runbook.steps if out_of_reach(step, known)}
    if not gone:
        return runbook, ()
    undone = {step.id for step in runbook.steps if step.do == UNDO and step.arguments.get("step") in gone}
    steps = [step for step in runbook.steps if step.id not in {*gone, *undone}]
    left_out = tuple(f"{step}: nobody here offers {verb}" for step, verb in gone.items())
    return runbook.model_copy(update={"steps": steps}), left_out


def _directory(directory: Path, known: Known, problems: list[Problem], absent: list[str] | None) -> list[Loaded]:
    """The runbooks of a directory. `absent` takes those that need verbs which nobody offers; None: that is a mistake."""
    if not directory.is_dir():
        problems.append(Problem(str(directory), 0, "", "is not a directory of runbooks"))
        return []
    read: list[Loaded] = []
    for path in runbook_files(directory):
        try:
            file = load_file(path)
            written = file.validated(Runbook)
            wanting = missing_verbs(written, known) if absent is not None else ()
            if absent is not None and wanting:
                absent.append(f"{path.stem}: nobody here offers {', '.join(wanting)}")
                continue
            runbook, left_out = _within_reach(_checked(file, written, known), known)
        except FileError as refused:
            problems.extend(refused.problems)
            continue
        problems.extend(_twice(file, runbook, read))
        read.append(Loaded(runbook, path, left_out=left_out))
    return read


def _checked(file: YamlFile, runbook: Runbook, known: Known) -> Runbook:
    found = [file.problem(mistake.place, mistake.what, mistake.value) for mistake in mistakes(runbook, known)]
    if found:
        raise FileError(found)
    return runbook


def _twice(file: YamlFile, runbook: Runbook, read: Iterable[Loaded]) -> Iterable[Problem]:
    for other in read:
        for field in ("name", "cause"):
            if getattr(other.runbook, field) == getattr(runbook, field):
                what = f"is the {field} of the runbook in {other.file.name} too"
                yield file.problem((field,), what, getattr(runbook, field))


def _same(one: Runbook, other: Runbook) -> bool:
    return one.name == other.name or one.cause == other.cause
