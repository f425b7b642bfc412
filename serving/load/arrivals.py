"""Who comes when and wants what: a Poisson process and lengths from one seed. Pure; nothing here waits."""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from itertools import count
from random import Random
from urllib.parse import urlsplit

from serving.load.patterns import Pattern

# Printable bytes of byte-level vocabularies: any tokenizer has these ids, and none of them is a special token.
_FIRST_ID, _LAST_ID = 32, 250

# Prompts that repeat one token begin with some of their own: with equal beginnings a prefix cache would answer them.
_OWN_START = 2

MOST_RPS = 10_000.0
MOST_SECONDS = 30 * 86_400.0


class LoadError(ValueError):
    """A load that must not or cannot be made. Says what to change."""


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """One load: a pattern sent to one URL, bounded in rate, time and number.

    `rps`, `seconds` and the token counts replace the pattern's when given. At most `max_in_flight` requests wait at once; an
    arrival that would exceed it is counted as not sent. Raises LoadError when a bound is passed, or when the URL is not on
    this machine and `allow_remote` is not set.
    """

    pattern: Pattern
    url: str
    model: str
    rps: float | None = None
    seconds: float | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    seed: int = 0
    max_requests: int = 1_000_000
    max_in_flight: int = 1_000
    request_timeout_s: float = 120.0
    allow_remote: bool = False

    def __post_init__(self) -> None:
        _check_url(self.url, allow_remote=self.allow_remote)
        _check("rps", self.rate, 0.0, MOST_RPS)
        _check("seconds", self.duration, 0.0, MOST_SECONDS)
        _check("request_timeout_s", self.request_timeout_s, 0.0, MOST_SECONDS)
        for name in ("prompt_tokens", "output_tokens", "max_requests", "max_in_flight"):
            value = getattr(self, name)
            if value is not None:
                _check(name, value, 0, 10_000_000)

    @property
    def rate(self) -> float:
        """Arrivals per second."""
        return (self.rps if self.rps is not None else self.pattern.rps) * self.pattern.factor

    @property
    def duration(self) -> float:
        """For how many seconds clients arrive."""
        return self.seconds if self.seconds is not None else self.pattern.seconds


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request. `at`: seconds after the start."""

    at: float
    prompt: tuple[int, ...]
    max_tokens: int


def arrivals(plan: LoadPlan) -> Iterator[Arrival]:
    """Every arrival of a plan, in order. The same plan gives the same arrivals."""
    rng, now = Random(plan.seed), 0.0
    repeated = Random(plan.seed).randrange(_FIRST_ID, _LAST_ID) if plan.pattern.one_token else None
    for number in count():
        now += rng.expovariate(plan.rate)
        if now >= plan.duration or number >= plan.max_requests:
            return
        wanted = plan.prompt_tokens or plan.pattern.prompt.draw(rng)
        output = plan.output_tokens or plan.pattern.output.draw(rng)
        prompt = tuple(rng.choices(range(_FIRST_ID, _LAST_ID), k=wanted if repeated is None else min(wanted, _OWN_START)))
        if repeated is not None:
            prompt += (repeated,) * (wanted - len(prompt))
        yield Arrival(now, prompt, output)


def _check(name: str, value: float, over: float, most: float) -> None:
    if not over < value <= most:
        raise LoadError(f"{name} is {value:g}; it must be more than {over:g} and at most {most:g}")


def _check_url(url: str, *, allow_remote: bool) -> None:
    parts = urlsplit(url)
    host = parts.hostname
    if parts.scheme not in {"http", "https"} or not host:
        raise LoadError(f"{url!r} is not a base URL; write it as in http://127.0.0.1:8100")
    if not allow_remote and not _is_loopback(host):
        raise LoadError(f"{host} is not this machine; --allow-remote makes load on another one, which others may notice")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
