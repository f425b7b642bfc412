"""Probes and actions for Chaos Toolkit (https://chaostoolkit.org), as exported drills name them: runbooks.chaos_toolkit.

They serve whoever runs an exported drill with that tool; `fleetwarden drill run` does not use them. They only break and
mend: blast radius, abort conditions and the scorecard are the own runner's. Parameters are named as in the file.
"""

import contextlib
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

from agent.drill import gate
from agent.drill.fleet import DrillFleetError
from agent.drill.gate import Look
from agent.drill.local import LocalDrillFleet
from agent.drill.users import Users
from runbooks.conditions import Truth
from runbooks.drill import ANY, Drill, Expectation, FaultOrder
from runbooks.drill_conditions import condition as compiled
from serving.clock import SystemClock
from serving.engines.state_directory import default_state_directory

KEY = "chaos-"
LOOK_S = 10.0


def is_steady(state_dir: str | None = None) -> bool:
    """Whether every engine serves, nothing is open, and the warden may act."""
    with _fleet(state_dir) as fleet:
        return not gate.unsteady(_nothing(), Look(fleet.clock.now(), fleet.sight(), Users().lately()))


def holds(condition: str, state_dir: str | None = None) -> bool:
    """Whether `condition` (see runbooks.drill_conditions) is true; users are watched for some seconds to tell."""
    clock, users = SystemClock(), Users()
    with _fleet(state_dir) as fleet:
        users.add(clock.now(), fleet.users())
        clock.sleep(LOOK_S)
        users.add(clock.now(), fleet.users())
        look = Look(clock.now(), fleet.sight(), users.lately())
    return compiled(condition).holds(gate.facts(look)).truth is Truth.TRUE


def inject(
    fault: str,
    target: str = ANY,
    parameters: Mapping[str, float] | None = None,
    after: float = 0.0,
    lasts: float | None = None,
    seed: int = 0,
    state_dir: str | None = None,
) -> dict[str, str]:
    """Make a fault, `after` seconds from now; it is undone by `clear` (`lasts` is only noted). Says what was broken."""
    order = FaultOrder(fault=fault, target=target, parameters=dict(parameters or {}), after=after, lasts=lasts)
    with _fleet(state_dir) as fleet:
        fleet.clock.sleep(after)
        (aim,) = gate.aims(_nothing(order), fleet.sight(), {}, seed)
        key = f"{KEY}{fault}-{uuid.uuid4().hex[:6]}"
        fleet.inject(key, order, aim.target)
    return {"key": key, "fault": fault, "target": str(aim.target)}


def clear(state_dir: str | None = None) -> list[str]:
    """Undo everything that `inject` made. Raises DrillFleetError when something cannot be undone."""
    with _fleet(state_dir) as fleet:
        undone = [(key, fleet.clear(key)) for key in fleet.keys_at_work() if key.startswith(KEY)]
    left = [f"{key}: {result.says}" for key, result in undone if not result.ok]
    if left:
        raise DrillFleetError(f"not undone: {'; '.join(left)}")
    return [f"{key}: {result.says}" for key, result in undone]


@contextlib.contextmanager
def _fleet(state_dir: str | None) -> Iterator[LocalDrillFleet]:
    fleet = LocalDrillFleet(Path(state_dir) if state_dir else default_state_directory(), SystemClock())
    try:
        yield fleet
    finally:
        fleet.close()


def _nothing(*orders: FaultOrder) -> Drill:
    """A drill that asks for nothing but the standing conditions."""
    faults = list(orders) or [FaultOrder(fault="none")]
    return Drill(name="none", summary="", faults=faults, expect=Expectation())
