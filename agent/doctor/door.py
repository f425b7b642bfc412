"""The front door: its metrics, its admin routes and their credentials, and whether it has the same engines as the map."""

import asyncio
from collections.abc import Mapping

import orjson
from pydantic import SecretStr

from agent.checkup import asking
from agent.checkup.asking import Heard, Unheard
from agent.checkup.places import MetricsPlace, NoPlace, StorePlace, find_all
from agent.doctor import clocks, signals
from agent.doctor.findings import Check, ok, problem, warning
from serving.clock import Clock
from serving.fleet.fleet_file import GatewayEntry
from serving.secret_file import read_secret
from serving.telemetry.registry import Registry
from serving.yaml_file import FileError

SECONDS = 5.0
_OK = 200


def examine(gateway: GatewayEntry | None, mapped: Mapping[str, str], registry: Registry, clock: Clock) -> list[Check]:
    """Every check of the front door; one warning where the map has none. `mapped`: URL by name of the engines on the map."""
    if gateway is None:
        todo = "name it under `gateway` in the fleet file, where there is one"
        return [signals.without_door("door.signals", "front door", registry, todo)]
    place = find_all([f"{gateway.url}/metrics"], registry, clock, seconds=SECONDS)[0]
    return [*_metrics(mapped, gateway, place, registry), *_admin(mapped, gateway, clock)]


def _metrics(
    engines: Mapping[str, str], gateway: GatewayEntry, place: MetricsPlace | NoPlace | StorePlace, registry: Registry
) -> list[Check]:
    if isinstance(place, NoPlace):
        others = "it is another kind of gateway"
        todo = f"{place.todo}; if {others}, requests in flight stay unknown"
        down = problem("door.answers", gateway.name, f"{place.url} {place.says}", todo, kind=str(place.kind))
        return [down, signals.without_door("door.signals", gateway.name, registry, "see the line above")]
    if isinstance(place, StorePlace) or not place.is_door:
        says = f"{place.url} is no front door of fleetwarden"
        return [problem("door.answers", gateway.name, says, "name the front door's own address as gateway.url")]
    checks = [ok("door.answers", gateway.name, "answers its /metrics")]
    clock = clocks.of_header("door.clock", gateway.name, place.heard) if place.heard else None
    checks += [clock] if clock is not None else []
    told = {labels["replica"] for series in place.samples.values() for labels, _ in series if "replica" in labels}
    mapped = engines.keys()
    missing = sorted(mapped - told)
    if missing:
        says = f"says nothing of {', '.join(missing)}; it names {', '.join(sorted(told)) or 'no engine'}"
        todo = "use the door's names in the fleet file, or give the door these engines"
        checks.append(problem("door.signals", gateway.name, says, todo, missing=missing, named=sorted(told)))
    else:
        checks.append(ok("door.signals", gateway.name, f"tells requests in flight of all {len(mapped)} engines"))
    return checks


def _admin(mapped: Mapping[str, str], gateway: GatewayEntry, clock: Clock) -> list[Check]:
    check, subject = "door.admin", gateway.name
    if gateway.admin_url is None:
        says = "no admin routes are named, so nothing can be taken out of rotation"
        return [warning(check, subject, says, "name them as gateway.admin_url, if the warden may drain engines")]
    try:
        token = read_secret(gateway.admin_token_file) if gateway.admin_token_file else None
    except FileError as refused:
        return [problem(check, subject, str(refused), "write the token of the admin routes into that file")]
    url = f"{gateway.admin_url}/admin/engines"
    heard = asyncio.run(_get(url, clock, token))
    if isinstance(heard, Unheard):
        return [problem(check, subject, f"{url} {heard.says}", heard.todo, kind=str(heard.kind))]
    if heard.status in (401, 403):
        given = "the token is not accepted" if token else "it wants a token, and none is named"
        todo = "renew gateway.admin_token_file" if token else "name the file with it as gateway.admin_token_file"
        return [problem(check, subject, f"{url} answers {heard.status}: {given}", todo, status=heard.status)]
    engines = _engines(heard)
    if engines is None:
        says = f"{url} answers {heard.status} and no list of engines"
        return [problem(check, subject, says, "check gateway.admin_url: the admin routes have a port of their own")]
    return [ok(check, subject, "its admin routes answer", token=token is not None), _same(mapped, subject, engines)]


async def _get(url: str, clock: Clock, token: SecretStr | None) -> Heard | Unheard:
    async with asking.session() as asks:
        return await asking.get(asks, url, clock, SECONDS, token=token)


def _engines(heard: Heard) -> dict[str, str] | None:
    """URL by name of the door's engines; None when the answer is something else."""
    try:
        said = orjson.loads(heard.body) if heard.status == _OK else None
    except orjson.JSONDecodeError:
        return None
    if not isinstance(said, list) or not all(isinstance(row, dict) and "name" in row for row in said):
        return None
    return {str(row["name"]): str(row.get("url", "")).rstrip("/") for row in said}


def _same(mapped: Mapping[str, str], subject: str, door: dict[str, str]) -> Check:
    """Whether door and map agree on the engines."""
    check = "door.engines"
    absent, strange = sorted(mapped.keys() - door.keys()), sorted(door.keys() - mapped.keys())
    moved = sorted(name for name in mapped.keys() & door.keys() if door[name] and door[name] != mapped[name])
    parts = [
        *([f"it does not know {', '.join(absent)}"] if absent else []),
        *([f"it has {', '.join(strange)}, which the fleet file lacks"] if strange else []),
        *([f"it has other addresses for {', '.join(f'{name} ({door[name]})' for name in moved)}"] if moved else []),
    ]
    if parts:
        todo = "make fleet file and door agree: the warden drains by these names"
        return problem(check, subject, "; ".join(parts), todo, absent=absent, strange=strange, moved=moved)
    return ok(check, subject, f"has the same {len(mapped)} engines as the fleet file")
