"""A drill in a process of its own, over a local fleet on disk, that says where it is and waits to be let on."""

from multiprocessing.connection import Connection
from pathlib import Path

from scripted_fleet import HANG, Life, ScriptedFleet, drill

from agent.cli.runbook import shipped_verbs
from agent.drill.fleet import Undone
from agent.drill.local import LocalDrillFleet
from agent.drill.runner import Means, run_drill
from agent.drill.store import DrillStore, RunRecord
from runbooks.drill import FaultOrder
from serving.clock import SystemClock
from serving.fleet.entity import Entity


class HalfRealFleet(ScriptedFleet):
    """As scripted, but faults are made to the real processes of a state directory."""

    def __init__(self, directory: Path, pipe: Connection) -> None:
        super().__init__((Life(),), engines=2)
        self.real = LocalDrillFleet(directory, SystemClock())
        self.pipe = pipe
        self.page = type(self.page)(0.0, tuple(type(e)("one", e.model, e.state) for e in self.page.engines[:1]))

    def tell(self, what: str) -> None:
        self.pipe.send(what)
        self.pipe.recv()

    def inject(self, key: str, order: FaultOrder, target: Entity) -> None:
        self.tell("before inject")
        self.real.inject(key, order, target)
        self.target, self.began = target, self.clock.now()
        self.tell("after inject")

    def at_work(self, key: str) -> bool:
        return self.real.at_work(key)

    def clear(self, key: str) -> Undone:
        self.tell("before undo")
        undone = self.real.clear(key)
        self.tell("after undo")
        return undone


class ToldStore(DrillStore):
    """A store that says when it has written."""

    def __init__(self, directory: Path, fleet: HalfRealFleet) -> None:
        super().__init__(directory)
        self._fleet = fleet

    def begin(self, record: RunRecord) -> None:
        super().begin(record)
        self._fleet.tell("after begin")

    def end(self) -> None:
        self._fleet.tell("before end")
        super().end()


def live(directory: Path, pipe: Connection) -> None:
    """One drill, to its end or until somebody kills this process."""
    fleet = HalfRealFleet(directory, pipe)
    lone = drill(
        HANG,
        fleet={"engines": 1},
        faults=[{"fault": "api-hang"}],
        blast_radius={"engines": 1, "share": 1.0},
    )
    run_drill(lone, fleet, Means(ToldStore(directory, fleet), shipped_verbs(), lambda _line: None))
    pipe.send("done")
