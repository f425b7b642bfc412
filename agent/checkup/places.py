"""What stands at a URL that somebody typed: an engine's metrics, a front door's, a Prometheus, or nothing of use.

Told apart by asking, not by how the URL looks. What had to be guessed (a scheme, a path) is said in `notes`.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import SplitResult, urlsplit, urlunsplit

import aiohttp
import orjson
from pydantic import SecretStr

from agent.checkup import asking
from agent.checkup.asking import Heard, Unheard
from serving.clock import Clock
from serving.telemetry.exposition import ExpositionError, ExpositionParser, Samples, decode
from serving.telemetry.promql import without_credentials
from serving.telemetry.reading import FailureKind
from serving.telemetry.registry import Job, Registry

METRICS = "/metrics"
_QUERY = "/api/v1/query"
_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._:-]*)=(.+)", re.DOTALL)
# Paths that people copy from a browser or from a client's settings, below which the wanted one is not.
_OF_A_STORE = ("/graph", "/query", "/targets", "/alerts", "/api/v1/query_range", _QUERY, "/api/v1", "/metrics")
_OF_AN_API = ("/v1", "/health", "/docs", "/v1/models", "/version")
_OK = 200


@dataclass(frozen=True, slots=True)
class MetricsPlace:
    """Metrics of an engine or of a front door at `url`. `name` is what the user called it, empty where not."""

    typed: str
    url: str
    samples: Samples
    name: str = ""
    notes: tuple[str, ...] = ()
    heard: Heard | None = None

    @property
    def is_door(self) -> bool:
        """Whether it is a front door of fleetwarden and no engine."""
        return not any(name.startswith("vllm:") for name in self.samples)


@dataclass(frozen=True, slots=True)
class StorePlace:
    """A Prometheus, or what speaks its API, with its base URL."""

    typed: str
    url: str
    notes: tuple[str, ...] = ()
    heard: Heard | None = None


@dataclass(frozen=True, slots=True)
class NoPlace:
    """Nothing that can be read. `says` is a sentence about the URL, `todo` what to do."""

    typed: str
    url: str
    kind: FailureKind
    says: str
    todo: str
    name: str = ""

    @property
    def may_be_an_engine(self) -> bool:
        """Whether an engine that is down, hung or starting looks so."""
        return self.kind in {FailureKind.REFUSED, FailureKind.TIMEOUT}


Place = MetricsPlace | StorePlace | NoPlace


def find_all(
    typed: Iterable[str], registry: Registry, clock: Clock, *, seconds: float = 5.0, token: SecretStr | None = None
) -> tuple[Place, ...]:
    """What stands at each of the typed URLs, asked side by side, in their order."""

    async def ask() -> tuple[Place, ...]:
        async with asking.session() as asks:
            finder = _Finder(asks, registry, clock, seconds, token)
            return tuple(await asyncio.gather(*(finder.find(text) for text in typed)))

    return asyncio.run(ask())


@dataclass(frozen=True, slots=True)
class _Wrong:
    """Why an answer is no exposition of an engine or a door."""

    kind: FailureKind
    says: str
    todo: str
    refuses: bool = False
    """Credentials are what it wants."""


@dataclass(slots=True)
class _Finder:
    asks: aiohttp.ClientSession
    registry: Registry
    clock: Clock
    seconds: float
    token: SecretStr | None
    parser: ExpositionParser = field(init=False)

    def __post_init__(self) -> None:
        self.parser = ExpositionParser(self.registry.wanted(Job.ENGINE, Job.DOOR))

    async def find(self, typed: str) -> Place:
        name, text = _name_and_url(typed)
        url, refusal = _tidied(text)
        if refusal is not None:
            shown = without_credentials(url) if "@" in url else url
            return NoPlace(shown, shown, FailureKind.OTHER, *refusal, name)
        parts = urlsplit(url)
        found = await (self._metrics_first(parts, url) if parts.path.endswith(METRICS) else self._store_first(parts, url))
        if not isinstance(found, NoPlace) and not found.notes and found.url not in {text, text.rstrip("/")}:
            found = replace(found, notes=(f"{text} was read as {found.url}",))
        return replace(found, typed=text) if isinstance(found, StorePlace) else replace(found, typed=text, name=name)

    async def _metrics_first(self, parts: SplitResult, url: str) -> Place:
        heard = await self._get(url)
        judged = self._judged(heard)
        if isinstance(heard, Heard) and not isinstance(judged, _Wrong):
            return MetricsPlace(url, url, judged, heard=heard)
        wrong = judged if isinstance(judged, _Wrong) else _wrong(heard)
        if isinstance(heard, Heard) and heard.status == _OK and b"\nprometheus_build_info" in heard.body:
            base = _with_path(parts, parts.path.removesuffix(METRICS))
            store = await self._store(base)
            if isinstance(store, StorePlace):
                return replace(store, notes=(f"{url} is a Prometheus' own metrics; {base} was asked for the fleet's",))
        return NoPlace(url, url, wrong.kind, wrong.says, wrong.todo)

    async def _store_first(self, parts: SplitResult, url: str) -> Place:
        path = parts.path.rstrip("/")
        base = _with_path(parts, _without(path, _OF_A_STORE))
        store = await self._store(base)
        if isinstance(store, StorePlace):
            return store
        if store.kind is not FailureKind.STATUS and store.kind is not FailureKind.GARBAGE:
            return NoPlace(url, base, store.kind, store.says, store.todo)  # no answer at all: another path helps nothing
        first: _Wrong | None = None
        below = dict.fromkeys([f"{path}{METRICS}", f"{_without(path, _OF_AN_API)}{METRICS}", *([path] if path else [])])
        for tried in (_with_path(parts, each) for each in below):
            heard = await self._get(tried)
            judged = self._judged(heard)
            if isinstance(heard, Heard) and not isinstance(judged, _Wrong):
                return MetricsPlace(url, tried, judged, heard=heard)
            first = first or (judged if isinstance(judged, _Wrong) else _wrong(heard))
        assert first is not None  # noqa: S101 - there is always one path to try
        if store.refuses and first.kind is FailureKind.STATUS:
            return NoPlace(url, base, store.kind, store.says, store.todo)
        return NoPlace(url, _with_path(parts, next(iter(below))), first.kind, first.says, first.todo)

    async def _store(self, base: str) -> StorePlace | _Wrong:
        heard = await self._get(f"{base}{_QUERY}", {"query": "vector(1)"}, self.token)
        if isinstance(heard, Unheard):
            return _Wrong(heard.kind, heard.says, heard.todo)
        if heard.status != _OK:
            return _of_status(heard, store=True)
        try:
            answer = orjson.loads(heard.body)
        except orjson.JSONDecodeError:
            return _Wrong(FailureKind.GARBAGE, "answers no JSON", "name the base URL of a Prometheus")
        if isinstance(answer, dict) and answer.get("status") == "success":
            return StorePlace(base, base, heard=heard)
        return _Wrong(FailureKind.GARBAGE, "answers JSON that no Prometheus would", "name the base URL of a Prometheus")

    async def _get(
        self, url: str, params: Mapping[str, str] | None = None, token: SecretStr | None = None
    ) -> Heard | Unheard:
        return await asking.get(self.asks, url, self.clock, self.seconds, token=token, params=params)

    def _judged(self, heard: Heard | Unheard) -> Samples | _Wrong:
        """The samples of an answer, or why it has none that help."""
        if isinstance(heard, Unheard):
            return _wrong(heard)
        if heard.status != _OK:
            return _of_status(heard, store=False)
        try:
            text = decode(heard.body)
            samples = self.parser.parse(text, open_metrics="openmetrics" in heard.headers.get("content-type", ""))
        except ExpositionError as unreadable:
            says = str(unreadable).replace("the answer is", "answers", 1).replace("the answer", "its answer", 1)
            says = {"answers empty": "answers nothing (an empty page)"}.get(says, says)
            return _Wrong(FailureKind.GARBAGE, says, _OWN_ADDRESS)
        if any(name.startswith(("vllm:", "door:")) for name in samples):
            return samples
        return _strangers(text)


_OWN_ADDRESS = "name the engine's own address, as in http://HOST:8000/metrics, and no page or proxy before it"


def _strangers(text: str) -> _Wrong:
    """What is said about an exposition without a single series of an engine."""
    if re.search(r"^vllm_", text, re.MULTILINE):
        says = "has names that begin with vllm_, as Ray Serve writes them, and these are not understood"
        return _Wrong(
            FailureKind.GARBAGE, says, "name an engine's own /metrics, or a Prometheus that relabels them to vllm:"
        )
    says = "answers metrics, but none of vLLM's"
    todo = "check the port; an engine started with --disable-log-stats exposes none: start it without"
    return _Wrong(FailureKind.GARBAGE, says, todo)


def _wrong(heard: Heard | Unheard) -> _Wrong:
    assert isinstance(heard, Unheard)  # noqa: S101 - what was heard is judged elsewhere
    return _Wrong(heard.kind, heard.says, heard.todo)


def _of_status(heard: Heard, *, store: bool) -> _Wrong:
    status = heard.status
    if 300 <= status < 400:  # noqa: PLR2004 - redirection
        where = without_credentials(heard.headers.get("location", "")) or "nowhere"
        login = " (a login page?)" if re.search(r"login|auth|sso|oauth", where) else ""
        says = f"answers {status} and points to {where}{login}, which is not followed"
        return _Wrong(
            FailureKind.STATUS, says, "name the URL it points to if that is the right one, or the address behind it"
        )
    says, todo, refuses = f"answers {status}", _OWN_ADDRESS, status in (401, 403)
    if refuses:
        says = f"answers {status}: it wants credentials" if status == 401 else f"answers {status}: it does not let us in"  # noqa: PLR2004 - Unauthorized
        if store:
            todo = "give a bearer token with --token-file FILE, or renew it"
        else:
            todo = "vLLM's own /metrics needs none: name the engine's own address; for a Prometheus: --token-file"
    elif status == 404:  # noqa: PLR2004 - Not Found
        says = "answers 404: nothing has that path"
        todo = "name the base URL of an engine's API server or of a Prometheus"
    elif status == 503:  # noqa: PLR2004 - Service Unavailable
        says = "answers 503: it says it is unavailable"
        todo = "an engine says so while it starts, scales its expert parallelism or shuts down: try again in a minute"
    elif status >= 500:  # noqa: PLR2004 - server errors
        says, todo = f"answers {status}: it failed to answer", "look at its log"
    return _Wrong(FailureKind.STATUS, says, todo, refuses)


def _name_and_url(typed: str) -> tuple[str, str]:
    named = _NAMED.fullmatch(typed.strip())
    return (named[1], named[2].strip()) if named else ("", typed.strip())


def _tidied(text: str) -> tuple[str, tuple[str, str] | None]:
    """The URL to ask, and, for what cannot be asked, why and what to do."""
    url = text if "://" in text else f"http://{text}"
    how = "write it as in http://10.0.0.7:8000/metrics"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as wrong:
        return url, (f"is not a URL: {wrong}", how)
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0 or any(map(str.isspace, url)):
        return url, ("is not an http:// or https:// URL with a host", how)
    if parts.username is not None or parts.password is not None:
        return (
            url,
            (
                "holds a user name or password, which others on this machine could read",
                "put a bearer token into a file and name it with --token-file FILE",
            ),
        )
    return urlunsplit((parts.scheme, parts.netloc, parts.path, parts.query, "")), None


def _with_path(parts: SplitResult, path: str) -> str:
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


def _without(path: str, endings: Iterable[str]) -> str:
    for ending in sorted(endings, key=len, reverse=True):
        if path.endswith(ending):
            return path.removesuffix(ending)
    return path
