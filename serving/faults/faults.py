"""Faults: making them, knowing which are at work, and taking them back, also after a crash of whoever made them."""

import contextlib
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from serving.clock import Clock, SystemClock
from serving.engines.engine_process import EngineError, UnknownEngineError
from serving.engines.ledger import EngineBusyError, engine_lock
from serving.engines.local import LocalEngines
from serving.engines.processes import ProcessMark, wait_gone
from serving.engines.specs import EngineSpec
from serving.faults.catalogue import Fault, FaultError, FaultUsageError, Way, catalogue, fault_named
from serving.faults.injection import FaultJournal, Injection
from serving.faults.interruption import deaf, ending_by_exception
from serving.faults.means import Collector, Hold, Kill, Load, Means, Programs, Simulator, Slices
from serving.yaml_file import FileError

DOOR = "door"
LOCK_TIMEOUT_S = 30.0
# vLLM's API server ends itself some seconds after its engine core; a little more than was ever seen.
DYING_S = 20.0


@dataclass(frozen=True, slots=True)
class Cleared:
    """What became of one undo. `ok` False: the injection stays on record, and `detail` says why."""

    injection: Injection
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True)
class ActiveFault:
    """An injection that was not undone yet. `over`: what was broken is gone, so nothing of it is left at work."""

    injection: Injection
    over: bool


class Faults:
    """The faults of one local fleet: `directory` is its state directory, the journal lies in its folder faults."""

    def __init__(self, directory: Path, engines: LocalEngines, clock: Clock) -> None:
        self._directory = directory
        self._engines = engines
        self._clock = clock
        self._journal = FaultJournal(directory.resolve() / "faults")
        programs = Programs(self._journal)
        self._means: Mapping[str, Means] = {
            "hold": Hold(),
            "kill": Kill(),
            "slices": Slices(programs, self._journal),
            "collector": Collector(engines),
            "simulator": Simulator(),
            "load": Load(programs),
        }

    def catalogue(self) -> Mapping[str, Fault]:
        """Every fault there is, by name."""
        return catalogue()

    def active(self) -> tuple[ActiveFault, ...]:
        """The injections that were not undone, oldest first. Raises RecordUnreadableError when one is damaged."""
        return tuple(ActiveFault(injection, self._is_over(injection)) for injection in self._journal.all())

    def inject(
        self, name: str, target: str, *, until: float | None = None, key: str | None = None, **parameters: object
    ) -> Injection:
        """Break `target` (an engine, or `door` for loads) by the fault `name`; recorded before anything is touched.

        `until` (Unix seconds) is only noted. `key` is the id it gets (default: one of its own), for callers who write down
        what they are about to break. Raises FaultUsageError when fault, target or parameter does not exist or
        fit, and FaultError when it cannot be done now; whatever was begun is then undone.
        """
        return self._inject(key or _new_id(name), name, target, until, parameters)

    def _inject(
        self, injection_id: str, name: str, target: str, until: float | None, parameters: Mapping[str, object]
    ) -> Injection:
        with self._locked():
            injection = self._planned(injection_id, name, target, until, parameters)
            self._make_room(injection)
            self._journal.write(injection)
            try:
                self._of(injection).apply(injection)
            except BaseException:  # Ctrl-C in the middle included
                self._undo(injection)
                raise
        return injection

    def clear(self, which: str) -> tuple[Cleared, ...]:
        """Undo the injection with the id `which`, all those on the target or of the fault of that name, or `all`.

        One that cannot be undone stays on record and does not keep the others. Raises FaultUsageError when nothing fits.
        """
        with self._locked():
            chosen = [each for each in self._journal.all() if which in ("all", each.id, each.target, each.fault)]
            if not chosen and which != "all":
                ids = ", ".join(each.id for each in self._journal.all()) or "none"
                raise FaultUsageError(f"no fault at work has the id, target or name {which!r}; at work: {ids}")
            return tuple(self._undo(injection) for injection in chosen)

    @contextlib.contextmanager
    def held(self, name: str, target: str, *, until: float | None = None, **parameters: object) -> Iterator[Injection]:
        """The fault for the length of a `with` block: undone at its end, on an exception, on Ctrl-C, SIGTERM and SIGHUP.

        Must be entered in the main thread, for only that can take signals. Raises what `inject` raises, and FaultError when
        it cannot be undone.
        """
        with ending_by_exception():
            injection_id = _new_id(name)
            try:
                yield self._inject(injection_id, name, target, until, parameters)
            finally:
                with deaf(), self._locked():
                    left = self._journal.read(injection_id)  # None: never made, or somebody else cleared it
                    cleared = self._undo(left) if left is not None else None
                if cleared is not None and not cleared.ok:
                    raise FaultError(f"{injection_id} could not be undone: {cleared.detail}")

    def _of(self, injection: Injection) -> Means:
        return self._means[injection.way.means]

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            with engine_lock(self._journal.directory / "lock", LOCK_TIMEOUT_S, SystemClock()):
                yield
        except EngineBusyError as error:
            raise FaultError(str(error)) from error

    def _planned(
        self, injection_id: str, name: str, target: str, until: float | None, parameters: Mapping[str, object]
    ) -> Injection:
        fault = fault_named(name)
        bound = fault.bind(parameters)
        leader: ProcessMark | None = None
        targets: tuple[ProcessMark, ...] = ()
        if target == DOOR and DOOR not in self._engines.names():
            way, url, model = self._at_door(fault)
        else:
            spec = self._known(target)
            way, url, model = fault.way(spec.kind), spec.url, spec.model
            leader, targets = self._touched(target, way)
        return Injection(
            id=injection_id,
            fault=name,
            target=target,
            way=way,
            parameters=bound,
            kills=fault.kills,
            at=self._clock.now(),
            until=until,
            targets=targets,
            leader=leader,
            url=url,
            model=model,
        )

    def _at_door(self, fault: Fault) -> tuple[Way, str, str]:
        if fault.load is None:
            raise FaultUsageError(f"{fault.name} needs an engine; engines: {', '.join(self._engines.names()) or 'none yet'}")
        from serving.fleet.fleet_file import FleetFile  # noqa: PLC0415 - its networkx is slow to import; only loads need it

        try:
            fleet = FleetFile.read(self._directory / "fleet.yaml")
        except FileError as error:
            raise FaultUsageError(f"the front door's address is not known: {error}") from error
        if fleet.gateway is None or not fleet.engines:
            raise FaultUsageError(f"{self._directory / 'fleet.yaml'} names no gateway or no engines")
        return Way(load=fault.load), fleet.gateway.url, fleet.engines[0].model

    def _known(self, name: str) -> EngineSpec:
        try:
            return self._engines.spec(name)
        except UnknownEngineError as error:
            raise FaultUsageError(str(error)) from error

    def _touched(self, name: str, way: Way) -> tuple[ProcessMark, tuple[ProcessMark, ...]]:
        """The engine's leader, and the processes that are touched (a load touches none)."""
        roles = self._engines.processes(name)
        if not roles["api"]:
            raise FaultError(f"engine {name} is not running ({self._engines.state(name).status}); start it first")
        leader = roles["api"][0]
        if way.load is not None:
            return leader, ()
        role = way.hold or way.kill or way.slices
        targets = (leader,) if role is None else roles[role]
        if not targets:
            raise FaultError(f"engine {name} has no {role} process yet; it is still starting")
        return leader, targets

    def _make_room(self, injection: Injection) -> None:
        """Forget what is over on this target; refuse what would tread on another fault at work."""
        for other in list(self._journal.all()):
            if other.target != injection.target:
                continue
            if self._is_over(other):
                self._undo(other)
            elif other.fault == injection.fault or _both_stop(other, injection):
                raise FaultError(
                    f"{other.id} is at work on {other.target} and would get mixed up with {injection.fault}; "
                    f"`fleetwarden fault clear {other.id}` first"
                )

    def _undo(self, injection: Injection) -> Cleared:
        try:
            detail = self._of(injection).undo(injection)
            if injection.kills:
                detail = self._revive(injection)
        except (FaultError, EngineError, EngineBusyError, OSError) as error:
            return Cleared(injection, ok=False, detail=str(error))
        self._journal.forget(injection.id)
        return Cleared(injection, ok=True, detail=detail)

    def _is_over(self, injection: Injection) -> bool:
        if not injection.kills:
            return self._of(injection).is_over(injection)
        if injection.target not in self._engines.names() or self._engines.state(injection.target).stopped:
            return True
        leaders = self._engines.processes(injection.target)["api"]
        return bool(leaders) and injection.leader not in leaders

    def _revive(self, injection: Injection) -> str:
        """The undo of a kill: the engine runs again, unless it was stopped on purpose or taken away."""
        name = injection.target
        if self._is_over(injection):
            return f"{name} was started again, stopped on purpose or removed meanwhile"
        if injection.leader is not None and wait_gone([injection.leader], DYING_S, SystemClock()):
            return f"{name} was restarted as process {self._engines.restart(name, grace_s=1.0).pid}"
        return f"{name} was started again as process {self._engines.start(name).pid}"


def _new_id(name: str) -> str:
    return f"{name}-{uuid.uuid4().hex[:6]}"


def _both_stop(one: Injection, other: Injection) -> bool:
    """Whether both stop and continue the same process: the one would take back the other."""
    stopping = {"hold", "slices"}
    return {one.way.means, other.way.means} <= stopping and not set(one.targets).isdisjoint(other.targets)
