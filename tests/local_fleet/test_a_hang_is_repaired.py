"""The product's main job on real processes: a hang is noticed, repaired, verified and told, with no hand in between."""

import re
from pathlib import Path
from typing import Any

import requests
from command_line_fleet import Fleet

from serving.fleet.fleet_file import FleetFile

SICK = "sim-1"
FAILED = re.compile(r"^door:requests_finished_total\{([^}]*)\} ([0-9.e+]+)$", re.MULTILINE)


def _ended(fleet: Fleet) -> list[dict[str, Any]]:
    return [row for row in fleet.told("incidents", "--all") if row["ended_at"] is not None]


def _failures_elsewhere(fleet: Fleet) -> float:
    """Requests that failed on engines other than the sick one, by the door's own count."""
    door = FleetFile.read(Path(fleet.directory) / "fleet.yaml").gateway
    assert door is not None
    text = requests.get(f"{door.url}/metrics", timeout=10).text
    bad = (labels for labels in FAILED.findall(text) if f'replica="{SICK}"' not in labels[0])
    return sum(float(count) for labels, count in bad if not re.search(r'result="(ok|client_closed)"', labels))


def test_a_hung_engine_is_found_drained_restarted_verified_and_put_back(fleet: Fleet) -> None:
    fleet.until(lambda: len(fleet.told("status")["engines"]) == 4, 30, "a first table of the fleet")
    assert fleet.run("fault", "inject", "engine-hang", SICK).returncode == 0

    fleet.until(lambda: len(_ended(fleet)) == 1, 180, "the incident's end")

    (incident,) = _ended(fleet)
    assert (incident["cause"], incident["entity"], incident["state"]) == ("engine.hung", f"engine/{SICK}", "resolved")
    told = fleet.told("explain", incident["incident"])
    done = [(row["verb"], row["outcome"]) for row in told["operations"]]
    assert done == [
        ("engine.canary", "failed"),
        ("door.drain", "done"),
        ("process.restart", "done"),
        ("engine.canary", "done"),
        ("door.undrain", "done"),
    ]
    assert _failures_elsewhere(fleet) == 0
    assert {row["state"] for row in fleet.told("status")["engines"]} == {"serving"}


def test_nothing_else_was_opened_and_the_warden_calls_itself_healthy(fleet: Fleet) -> None:
    assert len(fleet.told("incidents", "--all")) == 1
    port = FleetFile.read(fleet.directory / "fleet.yaml").gateway
    assert port is not None
    warden = port.url.rsplit(":", 1)[0] + f":{int(port.url.rsplit(':', 1)[1]) + 92}"
    assert requests.get(f"{warden}/healthz", timeout=10).status_code == 200
