"""The shipped runbooks: one for each cause, bound to the real verbs, careful where they should be; and a user's own."""

from pathlib import Path
from typing import Any

import pytest

from agent.cli.runbook import known, shipped_verbs
from agent.diagnosis.catalogue import load_catalogue
from runbooks.loader import LIBRARY, RunbookLibrary, load_library
from runbooks.runbook import HAND_OVER, UNDO, Autonomy, Runbook
from runbooks.templates import NAMES, fill, template_problems
from runbooks.wording import explained
from serving.yaml_file import FileError

VERBS = shipped_verbs()
NEVER_RESTARTED = {
    "clients.leaving",
    "engine.frozen_gauges",
    "engine.kv_pressure",
    "engine.slow_start",
    "experts.hot",
    "fabric.degraded",
    "gateway.broken",
    "gpu.degraded",
    "gpu.memory_vampire",
    "overload",
    "prefill.saturated",
    "rollout.bad",
    "telemetry.blind",
    "telemetry.doubled",
    "telemetry.renamed",
}


@pytest.fixture(scope="module")
def library() -> RunbookLibrary:
    what = known()
    return load_library(what.verbs, what.causes, signals=what.signals)


RUNBOOKS = load_library(VERBS, load_catalogue().names).runbooks


def test_every_cause_that_can_become_an_incident_has_a_runbook(library: RunbookLibrary) -> None:
    assert set(library.by_cause) == load_catalogue().names
    assert {loaded.file.parent for loaded in library.by_cause.values()} == {LIBRARY}


@pytest.mark.parametrize("runbook", RUNBOOKS, ids=lambda runbook: runbook.name)
def test_every_step_does_what_an_actuator_offers(runbook: Runbook) -> None:
    assert {step.do for step in (*runbook.steps, *runbook.rollback)} <= {*VERBS, UNDO, HAND_OVER}


@pytest.mark.parametrize("runbook", RUNBOOKS, ids=lambda runbook: runbook.name)
def test_every_runbook_tells_a_person_what_to_do_at_night(runbook: Runbook) -> None:
    assert len(runbook.escalate.split()) >= 30
    assert "\n" not in runbook.escalate


@pytest.mark.parametrize("runbook", RUNBOOKS, ids=lambda runbook: runbook.name)
def test_what_a_restart_cannot_help_is_never_restarted(runbook: Runbook) -> None:
    restarts = any(step.do == "process.restart" for step in runbook.steps)
    assert restarts is (runbook.cause not in NEVER_RESTARTED)


@pytest.mark.parametrize("runbook", [r for r in RUNBOOKS if r.steps], ids=lambda runbook: runbook.name)
def test_an_engine_is_tried_before_it_is_put_back(runbook: Runbook) -> None:
    verbs = [step.do for step in runbook.steps]
    if "process.restart" in verbs:
        after = verbs[verbs.index("process.restart") + 1 :]
        tried = after.index("engine.canary")
        back = [place for place, verb in enumerate(after) if verb in {"door.undrain", UNDO}]
        assert back
        assert tried < min(back)
        assert verbs.index("door.drain") < verbs.index("process.restart")


def test_an_engine_that_still_serves_is_only_taken_when_peers_are_healthy(library: RunbookLibrary) -> None:
    for cause in (
        *("engine.slow", "engine.gc_stall", "prefill.saturated", "engine.kv_pressure"),
        *("engine.bad_output", "engine.kv_leak", "engine.memory_leak"),
    ):
        runbook = library.for_cause(cause)
        assert runbook is not None
        assert "healthy_peers >= 1.0" in [guard.require for guard in runbook.guards]


def test_people_are_told_where_no_repair_helps(library: RunbookLibrary) -> None:
    for cause in (
        "overload",
        "clients.leaving",
        "engine.slow_start",
        *(f"telemetry.{how}" for how in ("blind", "doubled", "renamed")),
    ):
        runbook = library.for_cause(cause)
        assert runbook is not None
        assert not runbook.steps
        assert runbook.autonomy is Autonomy.RECOMMEND


@pytest.mark.parametrize("runbook", RUNBOOKS, ids=lambda runbook: runbook.name)
def test_the_explanation_names_every_step_guard_and_undo(runbook: Runbook) -> None:
    says = explained(runbook, VERBS)
    for step in runbook.steps:
        assert f"{step.id}: " in says
    for guard in runbook.guards:
        assert guard.because in says
    assert runbook.escalate in says
    if any(step.do == "door.drain" for step in runbook.steps):
        assert "by door.undrain" in says


OWN = """\
name: our-hang
cause: engine.hung
summary: Our own way.
steps:
  - id: probe
    do: engine.canary
verify: {require: [ready], hold: 5, within: 60}
escalate: Call us.
"""


def loaded_with(*directories: Path) -> RunbookLibrary:
    what = known()
    return load_library(what.verbs, what.causes, directories, signals=what.signals)


def test_a_runbook_of_ones_own_takes_the_place_of_the_shipped_one_for_its_cause(tmp_path: Path) -> None:
    (tmp_path / "hang.yaml").write_text(OWN)
    library = loaded_with(tmp_path)
    loaded = library.by_cause["engine.hung"]
    assert loaded.runbook.name == "our-hang"
    assert loaded.instead_of == (f"engine-hung ({LIBRARY / 'engine-hung.yaml'})",)
    assert library.named("engine-hung") is None


def test_a_runbook_of_ones_own_may_bring_an_old_name_to_another_cause(tmp_path: Path) -> None:
    (tmp_path / "hang.yaml").write_text(OWN.replace("our-hang", "engine-dead"))
    library = loaded_with(tmp_path)
    assert library.for_cause("engine.dead") is None
    assert library.by_cause["engine.hung"].runbook.name == "engine-dead"


def test_the_last_directory_wins(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "hang.yaml").write_text(OWN.replace("our-hang", name))
    assert loaded_with(tmp_path / "one", tmp_path / "two").by_cause["engine.hung"].runbook.name == "two"


def test_two_runbooks_for_one_cause_in_one_directory_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(OWN)
    (tmp_path / "b.yaml").write_text(OWN)
    with pytest.raises(FileError) as refused:
        loaded_with(tmp_path)
    assert [(problem.line, problem.field) for problem in refused.value.problems] == [(1, "name"), (2, "cause")]
    assert "too (got 'engine.hung')" in str(refused.value)


def test_templates_reach_a_fixed_set_of_names_and_nothing_else() -> None:
    for name in NAMES:
        assert template_problems(f"x ${{{name}}}") == []
    for asked in ("${env}", "${engine.__class__}", "${ engine }", "${}", "$HOME", "$$", "${engine", "$(id)"):
        assert template_problems(asked), asked


def test_a_template_is_filled_in_and_what_it_brings_is_not_read_again() -> None:
    names: dict[str, Any] = {"engine": "${incident}", "incident": "i-1"}
    assert fill("${engine} of ${incident}", names) == "${incident} of i-1"
    assert fill(3, names) == 3


def test_shipped_runbooks_are_left_out_where_nobody_offers_what_they_need_and_told() -> None:
    what = known()
    library = load_library(what.verbs, what.causes, signals=what.signals)
    assert library.out_of_reach == (), "nothing is left out where every verb is offered"
    without_door = {name: spec for name, spec in what.verbs.items() if not name.startswith("door.")}
    fewer = load_library(without_door, what.causes, signals=what.signals)
    assert "engine-hung: nobody here offers door.drain, door.undrain" in fewer.out_of_reach
    assert len(fewer.by_cause) + len(fewer.out_of_reach) == len(library.by_cause)
    assert fewer.for_cause("engine.hung") is None
