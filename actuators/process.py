"""process.*: restarting engines that are processes of this machine, and killing what a dead one left behind.

A restart happens once for each operation key: the key is stored with the start itself, so it is known again after a crash
at any point. Restarts of one engine in quick succession are held back by a growing delay.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from actuators.action import Action, Outcome, OutcomeStatus, Scalar, VerbSpec
from actuators.binding import bind, methods_of, verb, verbs_of, with_defaults
from serving.clock import Clock
from serving.engines.engine_process import EngineError, EngineProcess, KeyState, UnknownEngineError
from serving.engines.ledger import Deed, EngineBusyError
from serving.engines.local import LocalEngines
from serving.engines.records import RecordUnreadableError
from serving.fleet.entity import Entity, EntityKind

# The delay after the n-th restart in a row is BACKOFF_BASE_S * 2 ** (n - 1), as Kubernetes does it (10 s doubling to 5 min).
BACKOFF_BASE_S = 10.0
BACKOFF_CAP_S = 300.0
# Kubernetes forgets after ten minutes of running; a CPU engine may need four of these to start, so twice that is taken.
BACKOFF_FORGET_S = 1200.0


def earliest_restart(restarts: Sequence[float], now: float) -> float:
    """Unix seconds from which another restart is in order, given the times of earlier ones (oldest first); may be past.

    A restart that seems to lie in the future (the clock was set back) is left out rather than waited for.
    """
    chain: list[float] = []
    for at in reversed([at for at in restarts if at <= now]):
        if (chain[-1] if chain else now) - at > BACKOFF_FORGET_S:
            break
        chain.append(at)
    if not chain:
        return now
    return chain[0] + min(BACKOFF_CAP_S, BACKOFF_BASE_S * 2.0 ** min(len(chain) - 1, 16))


class ProcessActuator:
    """The verbs of engines that this machine runs. `clock` is read for the back-off only."""

    def __init__(self, engines: LocalEngines, clock: Clock) -> None:
        self._engines = engines
        self._clock = clock

    @property
    def verbs(self) -> Mapping[str, VerbSpec]:
        return verbs_of(self)

    def apply(self, action: Action, key: str) -> Outcome:
        return self._guarded(action, lambda name: self._apply(name, action, key))

    def rehearse(self, action: Action) -> Outcome:
        return self._guarded(action, lambda name: self._rehearse(name, action))

    def look_up(self, action: Action, key: str) -> Outcome:
        return self._guarded(action, lambda name: self._look_up(name, action, key))

    @verb(
        "process.restart",
        summary="stop every process of the engine and start it again",
        takes_capacity=True,
        covers=frozenset({"process.kill_orphans"}),
    )
    def restart(self, target: Entity, key: str, *, grace_s: float = 1.0) -> Outcome:
        """Restart the engine, `grace_s` seconds between SIGTERM and SIGKILL. Returns once the new process is started."""
        name, before = target.name, self._engines.state(target.name)
        known = self._known(name, key, before)
        if known is not None:
            return known
        held_back = self._held_back(name, before)
        if held_back is not None:
            return _failed(held_back, before)
        after = self._engines.restart(name, key, grace_s)
        return Outcome(OutcomeStatus.DONE, f"{name}: process {before.pid} -> {after.pid}", _facts(before), _facts(after))

    @verb("process.kill_orphans", summary="kill processes that a dead engine left behind")
    def kill_orphans(self, target: Entity, key: str) -> Outcome:  # noqa: ARG002 - killing what is there is idempotent by itself
        """Kill the engine's processes whose leader is gone. A living engine has none and is not touched."""
        killed = [process.pid for process in self._engines.kill_orphans(target.name)]
        detail = f"killed {_list(killed)}" if killed else "there were no orphans"
        return Outcome(OutcomeStatus.DONE, f"{target.name}: {detail}", {"orphans": len(killed)}, {"orphans": 0})

    def _apply(self, name: str, action: Action, key: str) -> Outcome:
        arguments: dict[str, Any] = with_defaults(self.verbs[action.verb], action.arguments)
        outcome: Outcome = methods_of(self)[action.verb](Entity.engine(name), key, **arguments)
        return outcome

    def _rehearse(self, name: str, action: Action) -> Outcome:
        before = self._engines.state(name)
        if action.verb == "process.kill_orphans":
            pids = [process.pid for process in self._engines.orphans(name)]
            return Outcome(OutcomeStatus.DONE, f"{name}: would kill {_list(pids)}", {"orphans": len(pids)}, {"orphans": 0})
        spec = self._engines.spec(name)
        if self._engines.is_busy(name):
            return _failed(f"{name}: another operation is under way", before)
        held_back = self._held_back(name, before)
        if held_back is not None:
            return _failed(held_back, before)
        if shutil.which(spec.command[0]) is None:
            return _failed(f"{name}: there is no program {spec.command[0]!r} to start", before, permanent=True)
        after = _facts(before) | {"pid": "new", "status": "running"}
        return Outcome(OutcomeStatus.DONE, f"{name}: would restart, process {before.pid} -> new", _facts(before), after)

    def _look_up(self, name: str, action: Action, key: str) -> Outcome:
        now = self._engines.state(name)
        if action.verb == "process.kill_orphans":
            left = [process.pid for process in self._engines.orphans(name)]
            status = OutcomeStatus.FAILED if left else OutcomeStatus.DONE
            return Outcome(status, f"{name}: orphans left: {_list(left)}", after={"orphans": len(left)})
        known = self._known(name, key, now)
        if known is not None:
            return known
        if self._engines.key_state(name, key) is KeyState.CUT_OFF:
            return _failed(
                f"{name}: the restart was cut off before a new process was started; the engine is {now.status}", now
            )
        return _failed(f"{name}: this restart never happened", now)

    def _known(self, name: str, key: str, now: EngineProcess) -> Outcome | None:
        """The outcome if this key has one already; None when the restart is still to be done, or done to its end."""
        state = self._engines.key_state(name, key)
        if state is KeyState.DONE:
            detail = f"{name}: restarted under this key before; nothing more was done"
            return Outcome(OutcomeStatus.DONE, detail, after=_facts(now))
        if state is KeyState.FAILED:
            ended = next(operation for operation in self._engines.operations(name) if operation.key == key)
            return _failed(f"{name}: could not be started under this key: {ended.detail}", now)
        if state is KeyState.UNDER_WAY:
            return Outcome(OutcomeStatus.UNKNOWN, f"{name}: an operation is under way", after=_facts(now))
        return None

    def _held_back(self, name: str, state: EngineProcess) -> str | None:
        if state.stopped:
            return f"{name}: a person stopped this engine; it is theirs to start again"
        now = self._clock.now()
        restarts = [operation.at for operation in self._engines.operations(name) if operation.deed is Deed.RESTART]
        at = earliest_restart(restarts, now)
        if at <= now:
            return None
        when = datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S UTC")
        return f"{name}: restarted {len(restarts)} times already; backing off until {when} ({at - now:.0f} s from now)"

    def _guarded(self, action: Action, doing: Callable[[str], Outcome]) -> Outcome:
        spec = self.verbs.get(action.verb)
        if spec is None:
            return Outcome(OutcomeStatus.FAILED, f"{action.verb} is not a verb here: {_list(self.verbs)}", permanent=True)
        problems = bind(spec, action.arguments)
        if action.target.kind is not EntityKind.ENGINE:
            problems = (*problems, f"{action.verb} acts on an engine, not on {action.target}")
        if problems:
            return Outcome(OutcomeStatus.FAILED, "; ".join(problems), permanent=True)
        try:
            return doing(action.target.name)
        except (UnknownEngineError, RecordUnreadableError) as error:
            return Outcome(OutcomeStatus.FAILED, str(error), permanent=True)
        except (EngineError, EngineBusyError) as error:
            return Outcome(OutcomeStatus.FAILED, str(error))
        except Exception as error:  # noqa: BLE001 - an actuator returns outcomes; what is not foreseen has an unknown one
            return Outcome(OutcomeStatus.UNKNOWN, f"{action.verb} on {action.target}: {type(error).__name__}: {error}")


def _facts(process: EngineProcess) -> dict[str, Scalar]:
    return {"pid": process.pid, "status": str(process.status), "restarts": process.restarts}


def _failed(detail: str, now: EngineProcess, *, permanent: bool = False) -> Outcome:
    return Outcome(OutcomeStatus.FAILED, detail, _facts(now), _facts(now), permanent=permanent)


def _list(items: Mapping[str, object] | Sequence[object]) -> str:
    return ", ".join(str(item) for item in items) or "none"
