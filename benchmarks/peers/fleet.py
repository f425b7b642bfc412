"""The fleet that all tools are asked about: engines, door, load and a warden that only observes, and a Prometheus or two.

It is the product's own local fleet, started by its own command. Every process that is started here is stopped here.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import requests
import yaml

from agent.local_fleet import is_free
from serving.clock import Clock
from serving.faults.catalogue import catalogue

HOST = "127.0.0.1"
FIRST_PORT, LAST_PORT, STRIDE = 8500, 12_000, 100
DOOR_ADMIN, PROMETHEUS, PROMETHEUS_OLD, PROXIES = 90, 93, 94, 60  # offsets from the first port, beside the fleet's own
SCRAPE_S = 2
READY_S = 60.0
LOAD_S = 1_200  # how long a flood goes on, unless it is ended before
# A quiet machine's vLLM reads the usual flood as it comes. This one is more than it reads, and its KV cache holds it.
REAL_FLOOD = {"prefill-flood": {"rps": 25, "prompt_tokens": 1000}}
REAL_RPS = 3.0  # requests a second from ordinary users: one an engine, so that whatever an engine suffers somebody feels

# Names that vllm-doctor 0.6.0 asks for and current vLLM does not export, made of what it does export.
OLD_NAMES_OF_DOCTOR = {
    "vllm:prompt_tokens_per_second": "rate(vllm:prompt_tokens_total[15s])",
    "vllm:generation_tokens_per_second": "rate(vllm:generation_tokens_total[15s])",
}


class FleetError(Exception):
    """The fleet cannot be started or changed; the message says why."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """A running fleet: base URLs by engine, the Prometheus that scrapes it, and another that knows older names too."""

    real: bool
    state: Path
    engines: Mapping[str, str]
    base_port: int
    prometheus: str
    prometheus_old: str

    @property
    def instances(self) -> dict[str, str]:
        """Engine names by Prometheus instance."""
        return {url.removeprefix("http://"): name for name, url in self.engines.items()}

    def inject(self, fault: str, engine: str) -> None:
        """Make `fault` on `engine` and leave it at work, a load for longer than all tools together take."""
        wanted: dict[str, float] = {"seconds": LOAD_S} if "seconds" in catalogue()[fault].parameters else {}
        if self.real:
            wanted |= REAL_FLOOD.get(fault, {})
        parameters = [word for name, value in wanted.items() for word in ("--param", f"{name}={value}")]
        fleetwarden("fault", "inject", fault, engine, "--detach", *parameters, "--state-dir", str(self.state))

    def clear(self) -> None:
        """Undo all faults."""
        fleetwarden("fault", "clear", "all", "--state-dir", str(self.state))

    def ready(self) -> bool:
        """Whether every engine answers."""
        return all(answers(f"{url}/health") for url in self.engines.values())


def fleetwarden(*words: str, codes: tuple[int, ...] = (0,)) -> str:
    """Run the product's command. Raises FleetError with what it said when it fails."""
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "agent.cli", *words], capture_output=True, text=True, check=False
    )
    if done.returncode not in codes:
        raise FleetError(f"fleetwarden {' '.join(words)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def answers(url: str) -> bool:
    """Whether a GET is answered with 200 within two seconds."""
    try:
        return requests.get(url, timeout=2).status_code == requests.codes.ok
    except requests.RequestException:
        return False


@contextmanager
def running_fleet(state: Path, engines: int, *, real: bool, clock: Clock, base_port: int = 0) -> Iterator[Fleet]:
    """Start everything, and stop everything at the end. Raises FleetError when something does not start."""
    program = shutil.which("prometheus")
    if program is None:
        raise FleetError("there is no `prometheus` here; on Debian: apt-get install prometheus")
    first = base_port or free_range(engines)
    model = "tiny" if real else "sim"
    urls = {f"{model}-{n}": f"http://{HOST}:{first + 1 + n}" for n in range(engines)}
    kind = ("--real", "--rps", str(REAL_RPS)) if real else ()
    stores: list[subprocess.Popen[bytes]] = []
    try:
        up = ("up", "--detach", "--engines", str(engines), "--base-port", str(first), "--autonomy", "observe", *kind)
        fleetwarden(*up, "--state-dir", str(state))
        for offset, rules in ((PROMETHEUS, {}), (PROMETHEUS_OLD, OLD_NAMES_OF_DOCTOR)):
            stores.append(_prometheus(program, state / f"prometheus-{offset}", first, first + offset, urls, rules))
        fleet = Fleet(
            real, state, urls, first, f"http://{HOST}:{first + PROMETHEUS}", f"http://{HOST}:{first + PROMETHEUS_OLD}"
        )
        deadline = clock.monotonic() + READY_S
        while not all(answers(f"{url}/-/ready") for url in (fleet.prometheus, fleet.prometheus_old)):
            if clock.monotonic() > deadline:
                raise FleetError(f"Prometheus was not ready after {READY_S:.0f} s; its log is under {state}")
            clock.sleep(0.5)
        yield fleet
    finally:
        for store in stores:
            store.terminate()
            store.wait(timeout=30)
        fleetwarden("fault", "clear", "all", "--state-dir", str(state), codes=(0, 1, 2))
        fleetwarden("down", "--state-dir", str(state), codes=(0, 1))


def free_range(engines: int) -> int:
    """The first port of a range in which everything that is needed is free. Raises FleetError when there is none."""
    needed = [*range(1 + engines), *range(DOOR_ADMIN, PROMETHEUS_OLD + 1), *range(PROXIES, PROXIES + engines)]
    for first in range(FIRST_PORT, LAST_PORT, STRIDE):
        if all(is_free(first + offset) for offset in needed):
            return first
    raise FleetError(f"no free range of ports between {FIRST_PORT} and {LAST_PORT}; name one with --base-port")


def _prometheus(
    program: str, place: Path, first: int, port: int, engines: Mapping[str, str], rules: Mapping[str, str]
) -> "subprocess.Popen[bytes]":
    """A Prometheus that scrapes the engines and the door, and records `rules` (expressions by name)."""
    place.mkdir(parents=True, exist_ok=True)
    recorded = [{"record": name, "expr": expression} for name, expression in rules.items()]
    (place / "rules.yml").write_text(
        json.dumps(
            {"groups": [{"name": "old", "interval": f"{SCRAPE_S}s", "rules": recorded}]} if recorded else {"groups": []}
        )
    )
    scraped = [{"targets": [url.removeprefix("http://")], "labels": {"replica": name}} for name, url in engines.items()]
    config = {
        "global": {"scrape_interval": f"{SCRAPE_S}s", "scrape_timeout": f"{SCRAPE_S}s"},
        "rule_files": [str(place / "rules.yml")],
        "scrape_configs": [
            {"job_name": "vllm", "static_configs": scraped},
            {"job_name": "door", "static_configs": [{"targets": [f"{HOST}:{first}"]}]},
        ],
    }
    (place / "prometheus.yml").write_text(yaml.safe_dump(config))
    arguments = (
        f"--config.file={place / 'prometheus.yml'}",
        f"--storage.tsdb.path={place / 'data'}",
        f"--web.listen-address={HOST}:{port}",
        "--log.level=warn",
    )
    with (place / "log").open("wb") as log:
        return subprocess.Popen([program, *arguments], stdout=log, stderr=log)  # noqa: S603 - the system's program
