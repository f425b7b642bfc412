"""The recordings of real vLLM under real faults, replayed: all that was done is found, and nothing else is raised.

Run with -s to see the tables.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from replay_command import run

TOTALS = (
    "faults",
    "found",
    "right_cause_first",
    "not_enough_evidence",
    "false_incidents",
    "destructive_steps_on_healthy",
    "detect_seconds_p50",
    "detect_seconds_max",
)


@pytest.fixture(scope="module", params=["vllm-0.32-a", "vllm-0.32-b", "vllm-0.32-c"])
def replayed(request: pytest.FixtureRequest, recordings: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    html = tmp_path_factory.mktemp("pages") / "page.html"
    result = run("replay", recordings / request.param, "--labels", "--json", "--html", html)
    told: dict[str, Any] = json.loads(result.stdout)
    told |= {"exit": result.exit_code, "html": html.read_text()}
    print("\n" + json.dumps(told["totals"], indent=1))  # noqa: T201 - what a person runs this for
    return told


def test_every_fault_is_found_with_the_right_cause_first_or_honestly_left_open(replayed: dict[str, Any]) -> None:
    totals = replayed["totals"]
    wrong = [fault for fault in replayed["faults"] if fault["verdict"] != "right" and not fault["near_noise"]]
    assert wrong == []
    assert totals["right_cause_first"] == totals["found"]
    assert totals["found"] + totals["not_enough_evidence"] == totals["faults"] == len(replayed["faults"]) > 0


def test_nothing_is_raised_in_benign_parts_or_outside_faults(replayed: dict[str, Any]) -> None:
    assert replayed["false"] == []
    assert replayed["totals"]["false_incidents"] == 0


def test_no_destructive_step_is_proposed_for_a_healthy_engine(replayed: dict[str, Any]) -> None:
    assert replayed["destructive"] == []
    assert replayed["totals"]["destructive_steps_on_healthy"] == 0


def test_the_doings_of_clients_touch_no_engine(replayed: dict[str, Any]) -> None:
    clients = [row for row in replayed["rows"] if row["cause"] == "clients.leaving"]
    assert all(row["would_do"] == [] and row["reason"] == "autonomy_recommend" for row in clients)


def test_the_totals_have_exactly_the_documented_keys_and_the_exit_code_says_that_all_is_well(
    replayed: dict[str, Any],
) -> None:
    assert tuple(replayed["totals"]) == TOTALS
    assert replayed["exit"] == 0
    assert replayed["failed_detectors"] == []


def test_the_page_needs_nothing_else_and_tells_of_every_incident_and_engine(replayed: dict[str, Any]) -> None:
    page = replayed["html"]
    assert not re.search(r"(src|href)\s*=\s*[\"'](?!#)|url\(|@import|https?://", page)
    for row in replayed["rows"]:
        assert page.count(f'id="{row["incident"]}"') == 1
    for engine in replayed["engines"]:
        assert f"<h3>{engine} " in page
    assert page.count('class="chart"') >= 4 * len(replayed["engines"])
    assert "nan" not in "".join(re.findall(r' d="([^"]*)"', page))


def test_a_hot_expert_is_told_from_more_work_named_and_left_alone(recordings: Path) -> None:
    result = run("replay", recordings / "vllm-0.32-c", "--labels", "--json")
    told = json.loads(result.stdout)
    assert [(row["cause"], row["entity"]) for row in told["rows"]] == [
        ("experts.hot", "engine/tiny-0"),
        ("experts.hot", "model/tiny-moe"),
    ]
    for row in told["rows"]:
        assert re.search(r"expert \d+ of layer [01] gets \d\.\d times its share of tokens", " ".join(row["evidence"]))
        assert row["would_do"] == []
