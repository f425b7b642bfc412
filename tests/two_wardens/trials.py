"""Trials: strike the leader in the middle of an action, see another take over, bring the first back, and read the record."""

import random
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from control_plane.server import ControlPlane
from control_plane.waiting import until
from kubernetes import client
from postgres.server import PostgresServer

from actuators.action import OutcomeStatus
from agent.journal.stored import StoredJournal, open_journal
from serving.clock import SystemClock
from two_wardens.process import Config
from two_wardens.proxy import CuttableProxy
from two_wardens.stamp import FENCE, PARTS, PREFIX, TERM, stamp_name
from two_wardens.verdict import Verdict, judge, node_writes
from two_wardens.warden_process import Said, WardenProcess, with_network

KINDS = ("kill", "freeze", "cut_api", "cut_all")
POINTS = ("read", "checked", "sent")  # before, right before and right after a write
NODES = 3
STARTED_S, STRUCK_S, HAND_OVER_S, BACK_S, FINISHED_S = 60.0, 60.0, 90.0, 60.0, 120.0


@dataclass(frozen=True, slots=True)
class Trial:
    """One strike. `seconds`: from the strike to the moment when the other led, by a journal that knows."""

    kind: str
    point: str
    seconds: float


@dataclass(slots=True)
class Bench:
    """Two wardens at work, and what was done to them."""

    wardens: list[WardenProcess]
    journal: StoredJournal
    finish: Path
    nodes: frozenset[str]
    plane: ControlPlane
    chance: random.Random
    linger: float
    trials: list[Trial] = field(default_factory=list)
    clock: SystemClock = field(default_factory=SystemClock)

    def leader(self) -> WardenProcess:
        """Waits until one leads, and the other runs and follows."""
        until(self._settled, HAND_OVER_S, self._told)
        return next(one for one in self.wardens if one.term)

    def rest(self, seconds: float) -> int:
        """Do nothing to them for so long; how often the leadership changed meanwhile."""
        self.leader()
        before, end = self._changes(), self.clock.monotonic() + seconds
        until(lambda: self.clock.monotonic() > end, seconds + 5, "time passes", poll_s=0.5)
        return self._changes() - before

    def strike(self, kind: str, point: str) -> Trial:
        """One trial."""
        old = self.leader()
        new = next(one for one in self.wardens if one is not old)
        mark, other_mark, term = len(old.said), len(new.said), old.term
        old.arm(kind, point)
        until(lambda: old.heard("struck", mark), STRUCK_S, lambda: f"{kind} at {point}: {self._told()}", poll_s=0.005)
        struck = old.heard("struck", mark)
        if kind.startswith("cut"):
            old.cut(database=kind == "cut_all")
        leads = self._await_lead(new, other_mark, term)
        self._linger()
        self._bring_back(old, kind)
        assert struck is not None
        trial = Trial(kind, point, leads.at - struck.at)
        self.trials.append(trial)
        return trial

    def conclude(self) -> Verdict:
        """Let them finish what is open, end them, and read the record."""
        self.leader()
        self.finish.touch()
        until(lambda: not self.journal.incidents(open_only=True), FINISHED_S, lambda: f"all is finished: {self._told()}")
        codes = [one.stop() for one in self.wardens]
        assert codes == [0, 0], self._told()
        writes = node_writes(self.plane.audit(), self.nodes)
        return judge(writes, self.journal.events(), self._world(), self._done())

    def _await_lead(self, new: WardenProcess, mark: int, term: int) -> Said:
        def leads() -> Said | None:
            return next((one for one in new.said[mark:] if one.event == "leads" and one.facts["term"] > term), None)

        until(leads, HAND_OVER_S, lambda: f"{new.name} takes over: {self._told()}", poll_s=0.01)
        told = leads()
        assert told is not None
        return told

    def _linger(self) -> None:
        """The new leader works for a while before the old one comes back."""
        end = self.clock.monotonic() + self.linger * self.chance.uniform(0.2, 1.8)
        until(lambda: self.clock.monotonic() > end, 2 * self.linger + 5, "time passes")

    def _bring_back(self, old: WardenProcess, kind: str) -> None:
        old.disarm()
        if kind == "kill":
            old.stop()
            old.start()
        elif kind == "freeze":
            old.thaw()
        else:
            old.heal()
        until(lambda: old.running and not old.term, BACK_S, lambda: f"{old.name} follows: {self._told()}")

    def _settled(self) -> bool:
        started = all(one.running and one.heard("started", 0) for one in self.wardens)
        return started and sum(one.term > 0 for one in self.wardens) == 1

    def _changes(self) -> int:
        return sum(one.event == "leads" for warden in self.wardens for one in warden.said)

    def _world(self) -> dict[str, str]:
        core = client.CoreV1Api(self.plane.api_client())
        found: dict[str, str] = {}
        for name in self.nodes:
            annotations = core.read_node(name).metadata.annotations or {}
            stamps = {name for name in annotations if name.startswith(PREFIX)} - {TERM, FENCE}
            found |= {name: annotations[name] for name in stamps}
        return found

    def _done(self) -> set[str]:
        return {
            stamp_name(int(incident.id.removeprefix("item-")), part)
            for incident in self.journal.incidents()
            for part in PARTS
            if any(o.outcome is not None and o.outcome.status is OutcomeStatus.DONE for o in incident.operations)
        }

    def _told(self) -> str:
        return "; ".join(f"{one.name} (running: {one.running}) said {one.said[-6:]}" for one in self.wardens)


@contextmanager
def bench(
    plane: ControlPlane,
    server: PostgresServer,
    namespace: str,
    directory: Path,
    *,
    election: dict[str, float],
    seed: int = 0,
    linger: float = 2.0,
) -> Iterator[Bench]:
    """Two wardens over a new journal and new nodes of a running control plane."""
    database = server.new_database()
    nodes = [f"{namespace}-stamped-{number}" for number in range(NODES)]
    core = client.CoreV1Api(plane.api_client())
    finish = directory / "finish"
    with ExitStack() as end:
        for name in nodes:
            core.create_node(client.V1Node(metadata=client.V1ObjectMeta(name=name)))
            end.callback(core.delete_node, name)
        journal = end.enter_context(closing(open_journal(server.url(database))))
        wardens = []
        for name in ("warden-a", "warden-b"):
            api = end.enter_context(CuttableProxy(int(plane.url.rpartition(":")[2])))
            way = end.enter_context(CuttableProxy(server.port))
            plain = Config(
                *(name, server.url(database), {"kind": "lease", "namespace": namespace, **election}),
                *(nodes, NODES, 0.1, str(directory / f"{name}.strike"), str(finish)),
            )
            config = with_network(plain, plane.kubeconfig(), api, way, server.port)
            wardens.append(WardenProcess(config, api, way, plane.guard))
        for one in wardens:
            end.callback(one.stop)
            one.start()
        yield Bench(wardens, journal, finish, frozenset(nodes), plane, random.Random(seed), linger)
