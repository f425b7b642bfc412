"""The local fleet behind the port of drills: simulated engines and real vLLM alike, found by their state directory.

What the warden sees comes from its status page, incidents from its journal, users from the front door's /metrics.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import requests

from agent import status as page
from agent.drill.fleet import DrillFleetError, EngineSeen, History, InjectionError, Sight, Undone, UserCounts
from agent.incident import Incident
from agent.journal.port import Journal, JournalError, Note
from agent.journal.stored import open_journal
from runbooks.drill import FaultOrder, FleetKind
from serving.clock import Clock
from serving.engines.engine_process import EngineError
from serving.engines.local import LocalEngines
from serving.engines.records import RecordUnreadableError
from serving.engines.specs import EngineKind
from serving.faults.catalogue import FaultError, FaultUsageError
from serving.faults.faults import Faults
from serving.faults.injection import FaultJournal
from serving.fleet.entity import Entity, EntityKind
from serving.fleet.fleet_file import FleetFile
from serving.telemetry.exposition import ExpositionError, ExpositionParser, decode
from serving.yaml_file import FileError

DOOR_TIMEOUT_S = 5.0
CLOSED = frozenset({"resolved", "suppressed"})
_REQUESTS = "door:user_requests_total"
_FIRST_BYTES = "door:user_time_to_first_byte_seconds_bucket"


class LocalDrillFleet:
    """The local fleet in `directory`. Close it when done."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self.clock = clock
        self._directory = directory
        self._engines = LocalEngines(directory, clock)
        self._faults = Faults(directory, self._engines, clock)
        self._journal_of_faults = FaultJournal(directory.resolve() / "faults")
        self._parser = ExpositionParser((_REQUESTS, _FIRST_BYTES))
        self._journal: Journal | None = None
        self._door: str | None = None

    @property
    def kind(self) -> FleetKind:
        """Real vLLM as soon as one engine is."""
        with _told():
            kinds = {self._engines.spec(name).kind for name in self._engines.names()}
        return FleetKind.VLLM if EngineKind.VLLM in kinds else FleetKind.SIMULATED

    def sight(self) -> Sight:
        try:
            seen = page.read(self._directory)
        except (OSError, ValueError) as error:
            raise DrillFleetError(f"{self._directory / page.FILE_NAME} cannot be read: {error}") from None
        if seen is None:
            raise DrillFleetError(f"no warden has written {self._directory / page.FILE_NAME}; start one by `fleetwarden up`")
        engines = tuple(
            EngineSeen(row.engine, row.model, row.state, row.in_flight, row.waiting, row.kv_usage) for row in seen.engines
        )
        still_open = tuple(row.incident for row in seen.incidents if row.state not in CLOSED)
        return Sight(seen.at, engines, still_open, seen.autonomy, seen.paused, seen.breaker)

    def users(self) -> UserCounts:
        url = self._door_url()
        if not url:
            return UserCounts()
        try:
            answer = requests.get(f"{url}/metrics", timeout=DOOR_TIMEOUT_S)
            answer.raise_for_status()
            samples = self._parser.parse(decode(answer.content))
        except (requests.RequestException, ExpositionError) as error:
            raise DrillFleetError(f"the front door's {url}/metrics cannot be read: {type(error).__name__}") from None
        results: dict[str, float] = {}
        for labels, value in samples.get(_REQUESTS, ()):
            results[labels["result"]] = results.get(labels["result"], 0.0) + value
        buckets: dict[float, float] = {}
        for labels, value in samples.get(_FIRST_BYTES, ()):
            buckets[float(labels["le"])] = buckets.get(float(labels["le"]), 0.0) + value
        bounds = tuple(sorted(buckets))
        return UserCounts(results, bounds, tuple(buckets[bound] for bound in bounds))

    def histories(self, since: float) -> tuple[History, ...]:
        with _told():
            journal = self._opened()
            found = [incident for incident in journal.incidents(since=since) if incident.opened_at >= since]
            return tuple(_history(journal, incident) for incident in found)

    def entities(self, kind: EntityKind) -> tuple[Entity, ...]:
        if kind is not EntityKind.ENGINE:
            return ()  # nothing else of this machine can be broken
        with _told():
            return tuple(Entity.engine(name) for name in self._engines.names())

    def around(self, target: Entity) -> frozenset[Entity]:
        return frozenset({target})  # only engines are broken here, and with one goes nothing else

    def inject(self, key: str, order: FaultOrder, target: Entity) -> None:
        until = None if order.lasts is None else self.clock.now() + order.lasts
        try:
            self._faults.inject(order.fault, target.name, until=until, key=key, **order.parameters)
        except (FaultError, FaultUsageError, EngineError, RecordUnreadableError, OSError) as error:
            raise InjectionError(f"{order.fault} on {target}: {error}") from error

    def keys_at_work(self) -> tuple[str, ...]:
        """The keys of all faults that are on record, whoever made them, the newest first."""
        with _told():
            return tuple(injection.id for injection in self._journal_of_faults.all())[::-1]

    def at_work(self, key: str) -> bool:
        with _told():
            return self._journal_of_faults.read(key) is not None

    def clear(self, key: str) -> Undone:
        try:
            if self._journal_of_faults.read(key) is None:
                return Undone(ok=True, says="nothing of it was at work any more")
            cleared = self._faults.clear(key)
        except FaultUsageError:  # somebody else cleared it in between
            return Undone(ok=True, says="it was cleared by somebody else")
        except Exception as error:  # noqa: BLE001 - an undo tells what kept it, and never keeps the others
            return Undone(ok=False, says=f"{type(error).__name__}: {error}")
        return Undone(all(each.ok for each in cleared), "; ".join(each.detail for each in cleared))

    def note(self, note: Note) -> None:
        with _told():
            self._opened().note(note)

    def close(self) -> None:
        """Let go of the journal."""
        if self._journal is not None:
            self._journal.close()

    def _opened(self) -> Journal:
        if self._journal is None:
            self._journal = open_journal(self._directory / "journal.sqlite", create=False)
        return self._journal

    def _door_url(self) -> str:
        if self._door is None:
            with _told():
                gateway = FleetFile.read(self._directory / "fleet.yaml").gateway
            self._door = "" if gateway is None else gateway.url.rstrip("/")
        return self._door


def _history(journal: Journal, incident: Incident) -> History:
    events = (entry.event for entry in journal.events(incident=incident.id))
    return History(incident, tuple(event for event in events if not isinstance(event, Note)))


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """What can go wrong with the records of a fleet, as the port's error."""
    try:
        yield
    except (JournalError, FileError, EngineError, RecordUnreadableError) as error:
        raise DrillFleetError(str(error)) from error
