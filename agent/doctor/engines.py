"""Each engine asked directly: does it answer, is it healthy by its own word, which version, which clock, which signals."""

import asyncio
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import aiohttp
import orjson

from agent.checkup import asking
from agent.checkup.asking import Heard, Unheard
from agent.checkup.places import MetricsPlace, NoPlace, StorePlace, find_all
from agent.checkup.sight import sight_of
from agent.doctor import clocks, signals
from agent.doctor.findings import Check, ok, problem, warning
from serving.clock import Clock
from serving.fleet.topology import EngineFacts
from serving.telemetry.registry import Job, Registry

OLDEST, NEWEST = (0, 9), (0, 32)  # the versions of vLLM whose names of metrics are known, both included
SECONDS = 5.0
_SCRAPED = frozenset({"scrape.up", "scrape.seconds"})
_OK = 200
_UNAVAILABLE = 503


@dataclass(frozen=True, slots=True)
class Asked:
    """An engine to examine: what it is called, the base URL of its API, and the model it should serve (empty: any)."""

    name: str
    url: str
    model: str = ""

    @classmethod
    def of(cls, facts: EngineFacts) -> "Asked":
        """The engine of a map."""
        return cls(facts.name, facts.url, facts.model)


def examine(engines: Sequence[Asked], registry: Registry, clock: Clock) -> list[Check]:
    """Every check of every engine, all engines asked side by side."""
    places = find_all([f"{engine.url}/metrics" for engine in engines], registry, clock, seconds=SECONDS)
    more = asyncio.run(_both(engines, clock))
    checks: list[Check] = []
    for engine, place, (health, version) in zip(engines, places, more, strict=True):
        checks += _answers(engine, place)
        if isinstance(place, NoPlace) and place.may_be_an_engine:
            continue  # nothing else can be heard there either
        if isinstance(place, StorePlace) or (isinstance(place, MetricsPlace) and place.is_door):
            continue  # what else it says is not an engine's
        checks += [_health(engine, health), _version(engine, version)]
        if isinstance(place, MetricsPlace):
            checks += _told_by_metrics(engine, place, registry)
    return checks


async def _both(engines: Iterable[Asked], clock: Clock) -> list[tuple[Heard | Unheard, Heard | Unheard]]:
    async with asking.session() as asks:
        return list(await asyncio.gather(*(_two(asks, engine.url, clock) for engine in engines)))


async def _two(asks: aiohttp.ClientSession, url: str, clock: Clock) -> tuple[Heard | Unheard, Heard | Unheard]:
    health = asking.get(asks, f"{url}/health", clock, SECONDS)
    version = asking.get(asks, f"{url}/version", clock, SECONDS)
    return await asyncio.gather(health, version)


def _answers(engine: Asked, place: MetricsPlace | NoPlace | StorePlace) -> list[Check]:
    check, subject = "engine.answers", engine.name
    match place:
        case NoPlace():
            return [problem(check, subject, f"{place.url} {place.says}", place.todo, kind=str(place.kind), url=place.url)]
        case MetricsPlace(is_door=True):
            says = f"{place.url} is a front door and no engine"
            return [problem(check, subject, says, "name the engine's own address as `url`, and the door under `gateway`")]
        case StorePlace():
            says = f"{place.url} is a Prometheus and no engine"
            return [
                problem(check, subject, says, "name the Prometheus under `telemetry`, and the engine's own address here")
            ]
    seconds = round(place.heard.seconds, 4) if place.heard else None
    return [ok(check, subject, "answers its /metrics", url=place.url, seconds=seconds)]


def _health(engine: Asked, heard: Heard | Unheard) -> Check:
    check, subject = "engine.health", engine.name
    if isinstance(heard, Unheard):
        return warning(check, subject, f"its /health {heard.says}", heard.todo)
    if heard.status == _OK:
        return ok(check, subject, "/health says 200 (which a hung engine says too)", status=heard.status)
    if heard.status == _UNAVAILABLE:
        says = "/health says 503: it calls itself dead, or is shutting down"
        return problem(check, subject, says, "look at its log, and restart it", status=heard.status)
    return warning(check, subject, f"/health says {heard.status}", "is this vLLM's own API?", status=heard.status)


def _version(engine: Asked, heard: Heard | Unheard) -> Check:
    check, subject = "engine.version", engine.name
    known = f"{_dotted(OLDEST)} to {_dotted(NEWEST)}"
    said = _json(heard).get("version") if isinstance(heard, Heard) else None
    if not isinstance(said, str):
        why = heard.says if isinstance(heard, Unheard) else f"answers {heard.status} without a version"
        return warning(check, subject, f"its /version {why}, so its version is not known", f"understood are vLLM {known}")
    numbers = re.match(r"(\d+)\.(\d+)", said)
    if numbers is None:
        return warning(
            check, subject, f"its version is {said!r}, which says nothing", f"understood are vLLM {known}", version=said
        )
    version = (int(numbers[1]), int(numbers[2]))
    if version < OLDEST:
        todo = "upgrade it; until then see which signals are absent"
        return warning(check, subject, f"vLLM {said} is older than what is understood ({known})", todo, version=said)
    if version > NEWEST:
        todo = "see which signals are absent, and whether a newer fleetwarden knows it"
        return warning(check, subject, f"vLLM {said} is newer than what was tried ({known})", todo, version=said)
    return ok(check, subject, f"vLLM {said}", version=said)


def _told_by_metrics(engine: Asked, place: MetricsPlace, registry: Registry) -> list[Check]:
    served = sorted(
        {labels["model_name"] for series in place.samples.values() for labels, _ in series if "model_name" in labels}
    )
    checks = []
    if engine.model and served and engine.model not in served:
        says = f"serves {', '.join(served)}, and the fleet file says {engine.model}"
        todo = "correct `model` in the fleet file: peers and serving budgets go by it"
        checks.append(problem("engine.model", engine.name, says, todo, served=served))
    elif served:
        checks.append(ok("engine.model", engine.name, f"serves {', '.join(served)}", served=served))
    clock = clocks.of_header("engine.clock", engine.name, place.heard) if place.heard else None
    if clock is not None:
        checks.append(clock)
    sight = sight_of(place.samples, registry.of_job(Job.ENGINE))
    checks.append(signals.judged("engine.signals", engine.name, sight, registry, scraped=_SCRAPED))
    return checks


def _json(heard: Heard) -> dict[str, object]:
    try:
        said = orjson.loads(heard.body) if heard.status == _OK else None
    except orjson.JSONDecodeError:
        said = None
    return said if isinstance(said, dict) else {}


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
