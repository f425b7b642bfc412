"""One checkup: from the places that somebody named to the reports, the first after some watching."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic import SecretStr

from agent.checkup.feed import HORIZON, Feed, Look, from_metrics, from_store, needed_for_a_hang, undecided
from agent.checkup.places import MetricsPlace, NoPlace, Place, StorePlace
from agent.checkup.report import CheckupReport, UnreadRow, nothing_read, report, unread
from agent.checkup.settings import load_settings_to_look_at
from agent.diagnosis.catalogue import load_catalogue
from detectors.parameters import load_parameters
from serving.clock import Clock
from serving.fleet.entity import Entity
from serving.telemetry.promql import PromqlError
from serving.telemetry.registry import Registry

USUAL_S = 20.0
NAMES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Wishes:
    """What is wished for. `seconds` of scraping, None: about USUAL_S; `since` seconds of a Prometheus' past."""

    since: float
    seconds: float | None = None
    match: Mapping[str, str] | None = None
    token: SecretStr | None = None


class Advances(Protocol):
    """What is told how far the work has come."""

    def __call__(self, done: float, of: float, says: str) -> None:
        """`done` of `of` seconds are over."""
        ...


class Stops(Protocol):
    """Whether somebody wants the watch to end."""

    def __call__(self) -> bool: ...


class Checkup:
    """A checkup over `places`. Raises FileError when a file that ships with it cannot be used."""

    def __init__(self, places: Sequence[Place], wishes: Wishes, registry: Registry, clock: Clock) -> None:
        self._wishes = wishes
        self._clock = clock
        self._registry = registry
        self._catalogue = load_catalogue()
        self._parameters = load_parameters()
        self._settings = load_settings_to_look_at(self._catalogue)
        self._metrics = tuple(place for place in places if isinstance(place, MetricsPlace))
        self._store = next((place for place in places if isinstance(place, StorePlace)), None)
        self._gone = tuple(place for place in places if isinstance(place, NoPlace))
        self._urls = [place.url for place in places]
        self._notes = [note for place in places if not isinstance(place, NoPlace) for note in place.notes]

    def reports(self, advance: Advances, stopped: Stops) -> Iterator[CheckupReport]:
        """The report; and, as long as more are asked for and nobody stops it, that of each later look."""
        if self._store is not None:
            yield from self._over_store(self._store, stopped)
        elif any(not place.is_door for place in self._metrics):
            yield from self._over_metrics(advance, stopped)
        else:
            doors = [
                UnreadRow(
                    url=place.url,
                    kind="door",
                    says="is a front door, which tells nothing of the insides of its engines",
                    todo="name the engines' own /metrics beside it",
                )
                for place in self._metrics
            ]
            yield self._nothing([*unread(self._gone), *doors])

    def _over_metrics(self, advance: Advances, stopped: Stops) -> Iterator[CheckupReport]:
        absent = tuple(place for place in self._gone if place.may_be_an_engine)
        horizon = max(HORIZON, self._wishes.seconds or 0.0)
        made = (self._registry, self._parameters, self._catalogue, self._clock)
        with from_metrics(self._metrics, absent, *made, horizon=horizon) as feed:
            yield self._report(feed, self._watched(feed, advance, stopped), "metrics")
            yield from self._later(feed, "metrics", stopped)

    def _over_store(self, place: StorePlace, stopped: Stops) -> Iterator[CheckupReport]:
        wishes = self._wishes
        made = (self._registry, self._parameters, self._catalogue, self._clock)
        try:
            feed, look = from_store(place.url, wishes.since, *made, wishes.match or {}, wishes.token)
        except PromqlError as failed:
            says = in_own_words(str(failed)).removeprefix(place.url).strip()
            todo = "ask for less with --since, or narrow it with --match" if "MB" in says or "no answer" in says else ""
            yield self._nothing([UnreadRow(url=place.url, kind="other", says=says, todo=todo)])
            return
        except ValueError as empty:
            todo = "does it scrape the engines, and is --since long enough? Its page /targets tells"
            yield self._nothing([UnreadRow(url=place.url, kind="empty", says=str(empty), todo=todo)])
            return
        with feed:
            yield self._report(feed, look, "prometheus")
            yield from self._later(feed, "prometheus", stopped)

    def _watched(self, feed: Feed, advance: Advances, stopped: Stops) -> Look:
        """Scrape for a while; somewhat longer where that settles whether an engine stands still, unless told how long."""
        wished = self._wishes.seconds
        seconds = wished or USUAL_S
        engines = len(feed.mapped.topology.engines)
        title = f"scraping {engines} engine{'' if engines == 1 else 's'}"
        began = self._clock.monotonic()
        look = feed.look()
        while not stopped():
            has_door = feed.mapped.has_door
            still = undecided(look, self._parameters, has_door=has_door) if wished is None else ()
            wanted = needed_for_a_hang(self._parameters) if still else seconds
            passed = self._clock.monotonic() - began
            advance(passed, wanted, f"{title}; {_standing(still)}" if still and passed >= seconds else title)
            if passed >= wanted:
                break
            self._clock.sleep(min(feed.interval - passed % feed.interval, wanted - passed))
            look = feed.look()
        return look

    def _later(self, feed: Feed, source: str, stopped: Stops) -> Iterator[CheckupReport]:
        while not stopped():
            self._clock.sleep(feed.interval)
            if not stopped():
                yield self._report(feed, feed.look(), source)

    def _report(self, feed: Feed, look: Look, source: str) -> CheckupReport:
        given = {"source": source, "urls": self._urls, "gone": self._gone, "notes": self._notes}
        return report(look, feed, self._registry, self._settings, **given)  # type: ignore[arg-type]

    def _nothing(self, rows: list[UnreadRow]) -> CheckupReport:
        return nothing_read(self._clock.now(), self._urls, rows, self._notes)


def _standing(engines: Sequence[Entity]) -> str:
    """Why the watch goes on."""
    named = ", ".join(engine.name for engine in engines[:NAMES_SHOWN])
    more = f" and {len(engines) - NAMES_SHOWN} more" if len(engines) > NAMES_SHOWN else ""
    return f"{named}{more} made no step so far: watching on to be sure"


def in_own_words(text: str) -> str:
    """A sentence about a Prometheus that names settings of the warden, with this command's options in their place."""
    text = text.replace("give or renew telemetry.prometheus.bearer_token_file", "give a bearer token with --token-file FILE")
    return text.replace("narrow the queries by telemetry.prometheus.match", "narrow it with --match LABEL=VALUE")
