"""A Prometheus: does it answer, with which credentials, version and clock, and what does it hold of each engine."""

import asyncio
import math
from collections.abc import Mapping

import numpy as np
import orjson
from pydantic import SecretStr

from agent.checkup import asking
from agent.checkup.asking import Heard
from agent.checkup.checkup import in_own_words
from agent.checkup.mapping import from_labels
from agent.checkup.past import USUAL_CADENCE, cadence_of, store_time
from agent.checkup.places import NoPlace, StorePlace, find_all
from agent.checkup.sight import sight_of
from agent.doctor import clocks, signals
from agent.doctor.findings import Check, ok, problem, warning
from serving.clock import Clock
from serving.fleet.topology import Topology
from serving.telemetry.exposition import Samples
from serving.telemetry.prometheus import Answers, PrometheusSource, Queries
from serving.telemetry.prometheus_targets import EngineFinder
from serving.telemetry.promql import PromqlClient, PromqlError
from serving.telemetry.reading import Reading
from serving.telemetry.registry import Job, Registry

SECONDS = 10.0
SLOW_S = 5.0  # seconds between scrapes from which on short faults go unseen
MISSED = 3  # scrapes after which an engine's samples are old
_OK = 200


def examine(
    url: str,
    topology: Topology | None,
    registry: Registry,
    clock: Clock,
    match: Mapping[str, str],
    token: SecretStr | None,
    *,
    subject: str = "prometheus",
) -> list[Check]:
    """Every check of the store at `url`. Without a map the engines are those that its labels tell."""
    place = find_all([url], registry, clock, seconds=SECONDS, token=token)[0]
    if not isinstance(place, StorePlace):
        says, todo = (place.says, place.todo) if isinstance(place, NoPlace) else ("is no Prometheus", "correct its URL")
        if token is None:
            todo = todo.replace("--token-file FILE", "bearer_token_file (for URLs: --token-file)")
        return [problem("store.answers", subject, f"{place.url} {says}", todo)]
    checks = [ok("store.answers", subject, f"{url} answers queries"), _version(subject, url, clock, token)]
    client = PromqlClient(clock, url, token)
    try:
        checks.append(_clock(subject, client, clock))
        checks += _engines(subject, client, url, topology, registry, clock, match)
    except PromqlError as failed:
        says = in_own_words(str(failed))
        checks.append(problem("store.engines", subject, says, "ask it yourself on its page /graph, and look at its log"))
    finally:
        client.close()
    return checks


def _version(subject: str, url: str, clock: Clock, token: SecretStr | None) -> Check:
    async def ask() -> object:
        async with asking.session() as asks:
            heard = await asking.get(asks, f"{url}/api/v1/status/buildinfo", clock, SECONDS, token=token)
        return orjson.loads(heard.body) if isinstance(heard, Heard) and heard.status == _OK else None

    try:
        said = asyncio.run(ask())
    except orjson.JSONDecodeError:
        said = None
    data = said.get("data") if isinstance(said, dict) else None
    version = data.get("version") if isinstance(data, dict) else None
    if not isinstance(version, str) or not version:
        return ok("store.version", subject, "does not tell its version, as some compatible stores do not")
    return ok("store.version", subject, f"version {version}", version=version)


def _clock(subject: str, client: PromqlClient, clock: Clock) -> Check:
    before = clock.now()
    said = store_time(client, SECONDS)
    after = clock.now()
    return clocks.judged("store.clock", subject, said - (before + after) / 2, (after - before) / 2 + 0.05, stamps=True)


def _engines(
    subject: str,
    client: PromqlClient,
    url: str,
    topology: Topology | None,
    registry: Registry,
    clock: Clock,
    match: Mapping[str, str],
) -> list[Check]:
    answers = Answers(*(client.ask(query, SECONDS) for query in Queries.of(registry, match).in_order))
    if topology is None:
        try:
            topology = from_labels(labels for labels, _ in (*answers.scalars, *answers.histograms)).topology
        except ValueError:
            todo = "add the engines to its scrape configuration; its page /targets shows what it scrapes"
            return [problem("store.engines", subject, "has no series of a vLLM engine now", todo)]
    source = PrometheusSource(clock, registry, url, match=match)
    try:
        reading = source.reading(topology, answers)
    finally:
        source.close()
    cadence = cadence_of(client, store_time(client, SECONDS), match)
    checks = [_pace(subject, cadence), *_found(subject, topology, reading)]
    if "door.in_flight" not in reading.values:
        todo = "let it scrape the front door too, and give the engines the door's names as a label `replica`"
        checks.append(signals.without_door("store.door", subject, registry, todo))
    else:
        checks.append(ok("store.door", subject, "holds the front door's signals"))
    checks += [
        check.model_copy(update={"details": {**check.details, "source": subject}})
        for check in _signals(answers, topology, reading, registry, cadence or USUAL_CADENCE)
    ]
    return checks


def _pace(subject: str, cadence: float | None) -> Check:
    check = "store.pace"
    if cadence is None:
        return warning(check, subject, "no engine was sampled lately, so its pace is not known", "see its page /targets")
    if cadence > SLOW_S:
        says = f"samples each engine every {cadence:.0f} s: faults that last less are not seen, and verdicts take longer"
        todo = "scrape engines and front door every 2 to 5 s, or let the warden scrape them itself (telemetry.scrape)"
        return warning(check, subject, says, todo, seconds=cadence)
    return ok(check, subject, f"samples each engine every {cadence:.0f} s", seconds=cadence)


def _found(subject: str, topology: Topology, reading: Reading) -> list[Check]:
    """Whether it holds every engine of the map, each once."""
    checks = []
    lost = dict(sorted((name, failure.detail) for name, failure in reading.failures.items()))
    if lost:
        todo = "correct `labels` or `url` in the fleet file, or the scrape configuration; see its page /targets"
        first = next(iter(lost.values()))
        says = f"does not know {', '.join(lost)} as up. Of {next(iter(lost))}: {first}"
        checks.append(problem("store.engines", subject, says, todo, lost=lost))
    checks += [
        warning("store.doubled", event.entity.name, event.text, "drop one of the scrape jobs") for event in reading.events
    ]
    found = len(topology.engines) - len(lost)
    if found:
        checks.insert(0, ok("store.engines", subject, f"holds {found} of {len(topology.engines)} engines"))
    return checks


def _signals(answers: Answers, topology: Topology, reading: Reading, registry: Registry, cadence: float) -> list[Check]:
    finder = EngineFinder(topology)
    by_row: dict[int, Samples] = {}
    for labels, value in (*answers.scalars, *answers.histograms):
        row = finder.row(labels)
        if row is not None:
            by_row.setdefault(row, {}).setdefault(labels["__name__"], []).append((labels, value))
    specs = {**registry.of_job(Job.ENGINE), **registry.of_job(Job.SCRAPE)}
    newest = float(np.nanmax(reading.sampled_at)) if np.isfinite(reading.sampled_at).any() else math.nan
    checks = []
    for row, engine in enumerate(topology.engines):
        if row not in by_row or engine.name in reading.failures:
            continue
        sight = sight_of(by_row[row], specs)
        old = newest - reading.sampled_at[row] > MISSED * max(cadence, 1.0)
        scraped = frozenset(sight.names) & frozenset(registry.of_job(Job.SCRAPE))
        late = sorted(frozenset(sight.names) - scraped) if old else ()
        checks.append(signals.judged("store.signals", engine.name, sight, registry, scraped=scraped, stale=late))
    return checks
