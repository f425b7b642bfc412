"""Local engines: detached processes of this machine that outlive whoever started them.

Each engine has a folder DIRECTORY/engines/NAME with spec.json, state.json, exit.json, lock and log. Its processes are one
session and carry FLEETWARDEN_ENGINE, FLEETWARDEN_STATE and FLEETWARDEN_OPERATION in their environment, so they are found
again whatever became of their parent. An operation is written down before it touches a process and again after; one that
was cut off in between is settled by looking for a process that carries its key.
"""

import contextlib
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from serving.clock import Clock, SystemClock
from serving.engines import processes
from serving.engines.engine_process import EngineError, EngineProcess, EngineStatus, KeyState, UnknownEngineError
from serving.engines.ledger import Deed, EngineRecord, ExitNote, Intent, Operation, engine_lock, is_locked
from serving.engines.processes import ProcessMark
from serving.engines.records import read_record, write_record
from serving.engines.spawning import await_exit_noted, spawn
from serving.engines.specs import NAME_PATTERN, EngineKind, EngineSpec

OWN_PREFIX = "FLEETWARDEN_"
LOCK_TIMEOUT_S = 60.0
# Long enough for a missing module or a wrong option of the interpreter to show, short beside any engine's start.
EARLY_EXIT_S = 0.3
# After a crash between exec and the record, the child's environment is readable within microseconds; this is ample.
SETTLE_S = 0.1
# A program that titles itself would otherwise write over the environment the process is recognised by (setproctitle).
KEEP_ENVIRONMENT = {"SPT_NOENV": "1"}


class LocalEngines:
    """The engines recorded under `directory`. Any number of processes may hold one over the same directory.

    `clock` stamps the records. Processes end in real time, so waiting for them does not use it.
    """

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._directory = directory.resolve()  # its text marks the processes, so it must be the same by every road
        self._clock = clock
        self._real = SystemClock()

    @property
    def directory(self) -> Path:
        """The state directory (absolute)."""
        return self._directory

    def folder(self, name: str) -> Path:
        """The engine's own folder. It need not exist."""
        return self._directory / "engines" / name

    def log(self, name: str) -> Path:
        """The file that holds the engine's output, of all its starts."""
        return self.folder(name) / "log"

    def gc_stall_file(self, name: str) -> Path:
        """The file that asks this engine for garbage-collector pauses (see serving.engines.vllm_plugin)."""
        return self.folder(name) / "gc_stall.json"

    def names(self) -> tuple[str, ...]:
        """All engines that were added, sorted."""
        return tuple(sorted(path.parent.name for path in (self._directory / "engines").glob("*/spec.json")))

    def add(self, spec: EngineSpec) -> None:
        """Record how `spec.name` is to be started; the next start uses it. Raises EngineError if it runs otherwise made."""
        with self._locked(spec.name):
            old = read_record(self._file(spec.name, "spec"), EngineSpec)
            if old is not None and old != spec and self._leader(spec.name) is not None:
                raise EngineError(f"engine {spec.name} is running with another specification; stop it before changing it")
            write_record(self._file(spec.name, "spec"), spec)

    def remove(self, name: str) -> None:
        """Forget an engine that is not running; its log stays. Raises EngineError when it runs."""
        self.spec(name)
        with self._locked(name):
            if self._members(name):
                raise EngineError(f"engine {name} still has processes; stop it before removing it")
            for kind in ("spec", "state", "exit"):
                self._file(name, kind).unlink(missing_ok=True)

    def spec(self, name: str) -> EngineSpec:
        """How the engine is started. Raises UnknownEngineError, listing those that exist."""
        if re.fullmatch(NAME_PATTERN, name) and (spec := read_record(self._file(name, "spec"), EngineSpec)) is not None:
            return spec
        known = ", ".join(self.names()) or "none yet"
        raise UnknownEngineError(f"there is no engine {name!r} under {self._directory}; engines: {known}")

    def state(self, name: str) -> EngineProcess:
        """The engine's process as it is now. Changes nothing."""
        self.spec(name)
        record = self._settled(name)
        if record.process is None:
            return EngineProcess(EngineStatus.NEVER_STARTED, restarts=record.restarts, stopped=record.stopped)
        alive = processes.is_alive(record.process)
        note = read_record(self._file(name, "exit"), ExitNote)
        ended = not alive and note is not None and note.pid == record.process.pid
        return EngineProcess(
            status=EngineStatus.RUNNING if alive else EngineStatus.EXITED,
            pid=record.process.pid,
            created_at=processes.created_at(record.process),
            exit_code=note.exit_code if ended and note is not None else None,
            operation=next((op.key for op in reversed(record.operations) if op.process == record.process), None),
            restarts=record.restarts,
            started_at=record.started_at,
            stopped=record.stopped,
        )

    def operations(self, name: str) -> tuple[Operation, ...]:
        """The operations that ended, oldest first; the last 200."""
        self.spec(name)
        return self._settled(name).operations

    def key_state(self, name: str, operation: str) -> KeyState:
        """What became of the operation with this key. Changes nothing."""
        self.spec(name)
        if self.is_busy(name):
            return KeyState.UNDER_WAY
        record = self._settled(name)
        if (ended := record.operation(operation)) is not None:
            return KeyState.DONE if ended.process is not None else KeyState.FAILED
        return KeyState.CUT_OFF if record.pending is not None and record.pending.key == operation else KeyState.NEVER

    def is_busy(self, name: str) -> bool:
        """Whether an operation on the engine is under way at this moment."""
        return is_locked(self._file(name, "lock", ""))

    def start(self, name: str, operation: str | None = None) -> EngineProcess:
        """Start the engine unless it runs. Raises EngineError when it cannot be started, EngineBusyError when locked."""
        spec = self.spec(name)
        with self._locked(name):
            record = self._adopt(name)
            done = operation is not None and record.operation(operation) is not None
            if not done and self._leader(name) is None:
                self._begin(
                    name, spec, Intent(key=operation or _new_key(), deed=Deed.START, at=self._clock.now()), grace_s=0.0
                )
        return self.state(name)

    def stop(self, name: str, grace_s: float = 5.0) -> EngineProcess:
        """End every process of the engine, also stopped ones and orphans, and wait until they are gone.

        SIGTERM first, SIGKILL after `grace_s` seconds (0: at once). Raises EngineError when a process cannot be ended.
        """
        self.spec(name)
        with self._locked(name):
            record = self._adopt(name)
            self._end(name, self._members(name), grace_s)
            self._store(name, record.model_copy(update={"pending": None, "stopped": True}))
        return self.state(name)

    def restart(self, name: str, operation: str | None = None, grace_s: float = 5.0) -> EngineProcess:
        """Stop the engine and start it again; once only for each key `operation`. Returns once the new process is started.

        Raises EngineError when it cannot be stopped or started; a failed start is remembered under its key too.
        """
        spec = self.spec(name)
        with self._locked(name):
            record = self._adopt(name)
            if operation is None or record.operation(operation) is None:
                self._begin(
                    name, spec, Intent(key=operation or _new_key(), deed=Deed.RESTART, at=self._clock.now()), grace_s
                )
        return self.state(name)

    def processes(self, name: str) -> Mapping[str, tuple[ProcessMark, ...]]:
        """The engine's living processes by role: `api`, `core`, `worker`; a role without its process is empty.

        Anything but vLLM is one process in all roles. A vLLM without separate workers runs them in the core.
        """
        spec = self.spec(name)
        leader = self._leader(name)
        api = () if leader is None else (leader,)
        if spec.kind is not EngineKind.VLLM:
            return {"api": api, "core": api, "worker": api}
        titles = {member: processes.title(member) for member in _by_pid(self._members(name))}
        core = tuple(member for member, title in titles.items() if title.startswith("VLLM::EngineCore"))
        worker = tuple(member for member, title in titles.items() if title.startswith("VLLM::Worker"))
        return {"api": api, "core": core, "worker": worker or core}

    def orphans(self, name: str) -> tuple[ProcessMark, ...]:
        """Living processes of the engine whose leader is gone, by process id. None while an operation is under way."""
        self.spec(name)
        if self.is_busy(name):
            return ()
        leader = self._settled(name).process
        return () if leader is not None and processes.is_alive(leader) else _by_pid(self._members(name))

    def kill_orphans(self, name: str) -> tuple[ProcessMark, ...]:
        """Kill what `orphans` finds and return it. Raises EngineError when one cannot be killed."""
        self.spec(name)
        with self._locked(name):
            self._adopt(name)
            found = frozenset() if self._leader(name) is not None else self._members(name)
            self._end(name, found, grace_s=0.0)
        return _by_pid(found)

    def _file(self, name: str, kind: str, suffix: str = ".json") -> Path:
        return self.folder(name) / f"{kind}{suffix}"

    @contextlib.contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        with engine_lock(self._file(name, "lock", ""), LOCK_TIMEOUT_S, self._real):
            yield

    def _record(self, name: str) -> EngineRecord:
        return read_record(self._file(name, "state"), EngineRecord) or EngineRecord()

    def _store(self, name: str, record: EngineRecord) -> None:
        write_record(self._file(name, "state"), record)

    def _marks(self, name: str) -> dict[str, str]:
        return {"FLEETWARDEN_ENGINE": name, "FLEETWARDEN_STATE": str(self._directory)}

    def _settled(self, name: str) -> EngineRecord:
        """The record, completed by a process that an operation started and was cut off before writing down."""
        record = self._record(name)
        if record.pending is None or self.is_busy(name):
            return record
        return self._completed(name, record)

    def _adopt(self, name: str) -> EngineRecord:
        """Under the lock: settle an operation that was cut off, and keep what was found."""
        record = self._record(name)
        if record.pending is None:
            return record
        settled = self._completed(name, record)
        if settled is not record:
            self._store(name, settled)
        return settled

    def _completed(self, name: str, record: EngineRecord) -> EngineRecord:
        assert record.pending is not None  # noqa: S101 - both callers have just looked
        found = self._leader_of(name, record.pending.key)
        if found is None:
            self._real.sleep(SETTLE_S)
            found = self._leader_of(name, record.pending.key)
        if found is None:
            return record
        return record.with_result(
            Operation(key=record.pending.key, deed=record.pending.deed, at=record.pending.at, process=found)
        )

    def _leader_of(self, name: str, key: str) -> ProcessMark | None:
        marked = processes.with_environment(self._marks(name) | {"FLEETWARDEN_OPERATION": key})
        return next((process for process in marked if processes.leads_group(process)), None)

    def _leader(self, name: str) -> ProcessMark | None:
        process = self._record(name).process
        return process if process is not None and processes.is_alive(process) else None

    def _members(self, name: str) -> frozenset[ProcessMark]:
        """All living processes of the engine, leader or not: those that carry its marks, and the leader's whole group."""
        leader = self._leader(name)
        group = processes.group_members(leader.pid) if leader is not None else frozenset()
        return group | processes.with_environment(self._marks(name))

    def _end(self, name: str, members: frozenset[ProcessMark], grace_s: float) -> None:
        left = processes.end(members, grace_s, self._real)
        if left:
            pids = ", ".join(str(process.pid) for process in left)
            raise EngineError(f"engine {name}: processes {pids} do not end, even by SIGKILL; look at them with ps")
        for process in members:
            await_exit_noted(process.pid)

    def _begin(self, name: str, spec: EngineSpec, intent: Intent, grace_s: float) -> None:
        """Under the lock: write the intent, clear the way, start, write the result."""
        record = self._record(name).with_intent(intent)
        self._store(name, record)
        self._end(name, self._members(name), grace_s)
        self._file(name, "exit").unlink(missing_ok=True)
        try:
            process = self._spawn(name, spec, intent.key)
        except (OSError, EngineError) as error:
            failed = Operation(key=intent.key, deed=intent.deed, at=self._clock.now(), process=None, detail=str(error))
            self._store(name, record.with_result(failed))
            raise EngineError(f"engine {name} could not be started: {error}") from error
        self._store(
            name, record.with_result(Operation(key=intent.key, deed=intent.deed, at=self._clock.now(), process=process))
        )

    def _spawn(self, name: str, spec: EngineSpec, key: str) -> ProcessMark:
        # The starter's own settings, among them secrets, are not the engine's business.
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(OWN_PREFIX)}
        stall = {"FLEETWARDEN_GC_STALL_FILE": str(self.gc_stall_file(name))} if spec.kind is EngineKind.VLLM else {}
        environment = (
            inherited | KEEP_ENVIRONMENT | spec.environment | stall | self._marks(name) | {"FLEETWARDEN_OPERATION": key}
        )
        pid = spawn(spec.command, environment, self.log(name), lambda pid, code: self._note_exit(name, pid, code))
        process = processes.mark(pid)
        if process is None or not processes.wait_gone([process], EARLY_EXIT_S, self._real):
            await_exit_noted(pid)
            raise EngineError(f"it ended at once; the end of {self.log(name)}:\n{_tail(self.log(name))}")
        return process

    def _note_exit(self, name: str, pid: int, exit_code: int) -> None:
        with contextlib.suppress(OSError):  # the folder may be gone by now, and then nobody wants to know
            if self.folder(name).is_dir():
                write_record(self._file(name, "exit"), ExitNote(pid=pid, exit_code=exit_code, at=self._clock.now()))


def _by_pid(members: Iterable[ProcessMark]) -> tuple[ProcessMark, ...]:
    return tuple(sorted(members, key=lambda member: member.pid))


def _new_key() -> str:
    return f"by-hand-{uuid.uuid4().hex[:12]}"


def _tail(path: Path, lines: int = 15) -> str:
    with contextlib.suppress(OSError):
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    return "(nothing)"
