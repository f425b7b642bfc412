"""Three real vLLM engines behind the front door, broken on purpose, and repaired with no hand in between.

Each case waits for the fleet to be well, breaks one engine, and waits for the incident's end. Run with `make test-real`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import requests
from command_line_fleet import CLOCK, Fleet, free_range

from serving.engines.specs import vllm_available
from serving.fleet.fleet_file import FleetFile

pytestmark = [
    pytest.mark.real_vllm,
    pytest.mark.skipif(not vllm_available(), reason="vLLM is not installed: `make setup-vllm` brings the CPU build"),
]

SETTLED_S = 20.0  # without an open incident, so that one case's after-effects are not the next one's evidence


@dataclass(frozen=True)
class Case:
    """What is broken, what must be found, and which verbs must have come out how (in this order, others between them)."""

    fault: str
    engine: str
    cause: str
    deeds: tuple[tuple[str, str], ...]
    parameters: tuple[str, ...] = ()


RESTARTED = (("door.drain", "done"), ("process.restart", "done"), ("engine.canary", "done"), ("door.undrain", "done"))
TURNED_DOWN = (("door.set_weight", "done"), ("door.set_weight", "done"))
RPS = "3"  # one request a second an engine: a fault that hits nobody is nobody's incident
CASES = (
    Case("engine-hang", "tiny-1", "engine.hung", (("engine.canary", "failed"), *RESTARTED)),
    Case("engine-kill", "tiny-0", "engine.dead", RESTARTED),
    Case("gc-stall", "tiny-2", "engine.gc_stall", RESTARTED),
    Case("kv-flood", "tiny-0", "engine.kv_pressure", TURNED_DOWN, ("seconds=75",)),
    # More than a quiet machine's engine can read, and room in the KV cache for all that it reads at once.
    Case("prefill-flood", "tiny-1", "prefill.saturated", TURNED_DOWN, ("seconds=60", "rps=25", "prompt_tokens=1000")),
)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path_factory.mktemp("real"))
    started = fleet.run(
        "up", "--real", "--engines", "3", "--rps", RPS, "--detach", "--base-port", str(free_range()), timeout=1_200
    )
    try:
        assert started.returncode == 0, started.stdout + started.stderr
        yield fleet
    finally:
        fleet.run("down")


def _settle(fleet: Fleet) -> None:
    """Wait until every engine serves and nothing has been open for a while."""
    quiet_since = CLOCK.monotonic()

    def settled() -> bool:
        nonlocal quiet_since
        page = fleet.told("status")
        well = not page["incidents"] and all(row["state"] == "serving" for row in page["engines"])
        if not well:
            quiet_since = CLOCK.monotonic()
        return CLOCK.monotonic() - quiet_since >= SETTLED_S

    fleet.until(settled, 300, "a fleet that is well")


def _incidents(fleet: Fleet, before: set[str]) -> list[dict[str, Any]]:
    return [row for row in fleet.told("incidents", "--all") if row["incident"] not in before]


def _is_within(wanted: tuple[tuple[str, str], ...], seen: list[tuple[str, str]]) -> bool:
    rest = iter(seen)
    return all(deed in rest for deed in wanted)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.fault)
def test_what_is_broken_is_named_repaired_verified_and_nothing_else_is_touched(fleet: Fleet, case: Case) -> None:
    _settle(fleet)
    before = {row["incident"] for row in fleet.told("incidents", "--all")}
    began = CLOCK.now()
    parameters = [word for each in case.parameters for word in ("-p", each)]
    injected = fleet.run("fault", "inject", case.fault, case.engine, "--detach", *parameters)
    assert injected.returncode == 0, injected.stdout + injected.stderr
    try:
        fleet.until(lambda: bool(_incidents(fleet, before)), 120, "an incident")
        if case.fault == "engine-hang":
            url = next(e.url for e in FleetFile.read(fleet.directory / "fleet.yaml").engines if e.name == case.engine)
            assert requests.get(f"{url}/health", timeout=10).status_code == 200
        fleet.until(lambda: all(row["ended_at"] for row in _incidents(fleet, before)), 600, "the incident's end")
    finally:
        fleet.run("fault", "clear", "all")

    # A flood may come up again after the engine was let off once; that is the same cause again, and nothing else.
    incident, *again = sorted(_incidents(fleet, before), key=lambda row: row["opened_at"])
    assert {(row["cause"], row["entity"]) for row in again} <= {(case.cause, f"engine/{case.engine}")}
    told = fleet.told("explain", incident["incident"])
    after = incident["opened_at"] - began
    print(f"\n{case.fault}: opened {after:.1f} s after the order. {told['headline']}. {told['cost']}")  # noqa: T201 - for -s
    assert (incident["cause"], incident["entity"]) == (case.cause, f"engine/{case.engine}")
    assert incident["state"] == "resolved", told["served"]
    deeds = [(row["verb"], row["outcome"]) for row in told["operations"]]
    assert _is_within(case.deeds, deeds)
    assert {row["target"] for row in told["operations"]} == {f"engine/{case.engine}"}
