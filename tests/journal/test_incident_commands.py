"""The commands over the journal: what a person reads at three in the morning, and what a script relies on."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from actuators.action import Action, Outcome, OutcomeStatus
from agent.cli import incidents, switches
from agent.decision.decision import Decision, Reason, Verdict
from agent.diagnosis.diagnosis import Diagnosis, Rival
from agent.incident import (
    ApprovalAsked,
    AttemptStarted,
    Decided,
    Ended,
    Ending,
    Finished,
    IncidentEvent,
    IncidentState,
    Intended,
    Opened,
    Rediagnosed,
    RollbackStarted,
    StepPassed,
    VerificationStarted,
    Withdrawn,
)
from agent.journal.port import PAUSE
from agent.journal.stored import StoredJournal, open_journal
from detectors.finding import Evidence, Finding, Symptom
from serving.fleet.entity import Entity

ENGINE = Entity.engine("sim-1")
NAME = "20260102-1403-hung-sim-1-3f2a"
OTHER = "20260102-1500-dead-sim-2-0b1c"
T = 1_767_362_580.0  # 2026-01-02 14:03:00 UTC
FAR = 4_000_000_000.0

app = typer.Typer(pretty_exceptions_enable=False)
for command in (
    incidents.incidents,
    incidents.explain,
    incidents.approve,
    incidents.reject,
    switches.pause,
    switches.resume,
):
    app.command()(command)


@pytest.fixture
def fleetwarden(tmp_path: Path) -> Callable[..., Result]:
    """Runs a command over the state directory of this test."""
    return lambda name, *arguments: CliRunner().invoke(app, [name, "--state-dir", str(tmp_path), *arguments])


@pytest.fixture
def record(tmp_path: Path) -> Iterator[StoredJournal]:
    with closing(open_journal(tmp_path / "journal.sqlite")) as journal:
        yield journal


@pytest.fixture
def hung() -> Diagnosis:
    frozen = Evidence("engine.steps", "no engine step for 12 s with 4 requests in flight", 12.0, 1.0, "s")
    failing = Evidence("door.finished.timeout", "3 answers timed out", 3.0, float("nan"))
    return Diagnosis(
        "engine.hung",
        ENGINE,
        0.92,
        T - 12,
        (
            Finding(Symptom.REQUESTS_FAILING, ENGINE, T - 5, 0.4, (failing,)),
            Finding(Symptom.STEPS_FROZEN, ENGINE, T - 12, 0.8, (frozen,)),
        ),
        against=("the queue did not grow",),
        missing=("engine.kv_usage",),
        rivals=(Rival("engine.frozen_gauges", ENGINE, 0.41, "the door waits for 4 answers"),),
    )


@pytest.fixture
def repaired(hung: Diagnosis) -> tuple[IncidentEvent, ...]:
    """A life with everything in it: another cause first, a wait, a withdrawal, a failed verification, a second attempt."""
    drain = Action("door.drain", ENGINE, {"by": "fleetwarden"})
    slow = Diagnosis("engine.slow", ENGINE, 0.5, T - 14, ())
    thin = Decision(Verdict.WAIT, Reason.EVIDENCE_THIN, "score 0.50 is below the 0.60 asked")
    return (
        Opened(NAME, T, slow),
        Decided(NAME, T, thin),
        Rediagnosed(NAME, T + 2, hung),
        Decided(NAME, T + 3, Decision(Verdict.ACT, Reason.STEP_DUE, "step drain is due", "drain", drain)),
        AttemptStarted(NAME, T + 3, 1, "engine-hung"),
        Intended(NAME, T + 3, "k1", "drain", 1, drain),
        Withdrawn(NAME, T + 6, "k1", "looked up: the door knows nothing of it"),
        Intended(NAME, T + 6, "k2", "drain", 1, drain),
        Finished(NAME, T + 7, "k2", Outcome(OutcomeStatus.DONE, "drained")),
        StepPassed(NAME, T + 7, "drain", "done as expected"),
        VerificationStarted(NAME, T + 8),
        RollbackStarted(NAME, T + 28, "success 0.80 is below 0.95"),
        AttemptStarted(NAME, T + 60, 2, "engine-hung"),
        VerificationStarted(NAME, T + 61),
        Ended(NAME, T + 90, IncidentState.RESOLVED, Ending.REPAIRED, "held for 20 s", "3 requests failed in 102 s"),
    )


def write(record: StoredJournal, *events: IncidentEvent) -> None:
    for event in events:
        record.append(event)


def test_explain_tells_the_whole_story(
    record: StoredJournal, repaired: tuple[IncidentEvent, ...], fleetwarden: Callable[..., Result]
) -> None:
    write(record, *repaired)
    result = fleetwarden("explain", NAME)
    assert result.exit_code == 0
    for part in (
        "Engine sim-1 was hung: repaired",
        "Since 2026-01-02 14:02:48 UTC, noticed after 12 s",
        "no engine step for 12 s with 4 requests in flight [engine.steps]",
        "the queue did not grow",
        "engine.kv_usage",
        "engine.frozen_gauges on engine/sim-1, score 0.41: the door waits for 4 answers",
        "engine.slow: later evidence spoke for engine.hung",
        "score 0.50 is below the 0.60 asked",
        "looked up: the door knows nothing of it",
        "not shown to have recovered: success 0.80 is below 0.95",
        "recovered: held for 20 s",
        "Cost: 3 requests failed in 102 s",
    ):
        assert part in result.output
    assert result.output.index("no engine step") < result.output.index("3 answers timed out"), "the strongest comes first"


def test_explain_as_json_has_the_documented_keys(
    record: StoredJournal, repaired: tuple[IncidentEvent, ...], fleetwarden: Callable[..., Result]
) -> None:
    write(record, *repaired)
    told = json.loads(fleetwarden("explain", "last", "--json").output)
    assert list(told) == [
        "incident",
        "headline",
        "what",
        "since",
        "evidence",
        "against",
        "missing",
        "rivals",
        "ruled_out",
        "operations",
        "verifications",
        "served",
        "cost",
        "todo",
        "timeline",
    ]
    assert (told["incident"]["incident"], told["incident"]["state"]) == (NAME, "resolved")
    assert told["evidence"][1]["expected"] is None, "a number that is none is null"
    assert [(o["key"], o["outcome"], o["detail"]) for o in told["operations"]] == [
        ("k1", "withdrawn", "looked up: the door knows nothing of it"),
        ("k2", "done", "drained"),
    ]
    assert [(v["verdict"], v["ended_at"] - v["began_at"]) for v in told["verifications"]] == [
        ("not_recovered", 20.0),
        ("recovered", 29.0),
    ]
    assert [row["type"] for row in told["timeline"]] == [type(event).__name__ for event in repaired]


def test_explain_of_an_incident_just_opened_says_what_is_not_known_yet(
    record: StoredJournal, hung: Diagnosis, fleetwarden: Callable[..., Result]
) -> None:
    write(record, Opened(NAME, T, hung))
    output = " ".join(fleetwarden("explain").output.split())
    assert "open for" in output
    assert "not reached" in output
    assert "Cost: not counted yet" in output


@pytest.mark.parametrize("text", [NAME, "20260102-14", "last"])
def test_an_incident_is_named_by_id_by_its_beginning_or_as_the_last(
    record: StoredJournal, repaired: tuple[IncidentEvent, ...], fleetwarden: Callable[..., Result], text: str
) -> None:
    if text != "last":
        write(record, Opened(OTHER, T + 3_600, Diagnosis("engine.dead", Entity.engine("sim-2"), 1.0, T, ())))
    write(record, *repaired)
    assert json.loads(fleetwarden("explain", text, "--json").output)["incident"]["incident"] == NAME


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("2026", f"begins 2 incidents: {NAME}, {OTHER}"),
        ("sim-2", f"no incident is called 'sim-2'; there are, among others: {OTHER}"),
        (NAME.replace("hung", "hang"), NAME),
        ("zzz", OTHER),
    ],
)
def test_an_unknown_id_lists_what_was_perhaps_meant(
    record: StoredJournal, hung: Diagnosis, fleetwarden: Callable[..., Result], text: str, says: str
) -> None:
    write(record, Opened(NAME, T, hung))
    write(record, Opened(OTHER, T, Diagnosis("engine.dead", Entity.engine("sim-2"), 1.0, T, ())))
    for name in ("explain", "approve", "reject"):
        result = fleetwarden(name, text)
        assert (result.exit_code, result.stdout) == (2, "")
        assert says in result.stderr


def test_incidents_lists_what_is_open_or_waits_for_a_person_and_all_on_request(
    record: StoredJournal, repaired: tuple[IncidentEvent, ...], hung: Diagnosis, fleetwarden: Callable[..., Result]
) -> None:
    write(record, *repaired)
    assert fleetwarden("incidents").exit_code == 0
    assert "nothing is open" in fleetwarden("incidents").output
    write(record, Opened(OTHER, T + 100, hung))
    write(record, Ended(OTHER, T + 200, IncidentState.ESCALATED, Ending.GAVE_UP, "call somebody"))
    result = fleetwarden("incidents")
    assert result.exit_code == 1
    assert OTHER in result.output
    assert "escalated (gave up) !" in result.output
    assert NAME not in result.output
    rows = json.loads(fleetwarden("incidents", "--all", "--json").output)
    assert [(row["incident"], row["ending"], row["needs_person"]) for row in rows] == [
        (NAME, "repaired", False),
        (OTHER, "gave_up", True),
    ]
    keys = ["incident", "cause", "entity", "state", "ending", "opened_at", "ended_at", "gone_since"]
    assert list(rows[0]) == [*keys, "attempt", "score", "enough", "needs_person", "says", "cost"]


@pytest.mark.usefixtures("record")
def test_an_empty_journal_is_no_error(fleetwarden: Callable[..., Result]) -> None:
    result = fleetwarden("incidents", "--all")
    assert (result.exit_code, result.output) == (0, "no incident so far\n")
    assert json.loads(fleetwarden("incidents", "--json").output) == []
    assert "no incident in this journal yet" in fleetwarden("explain", "last").stderr


@pytest.mark.parametrize("command", ["incidents", "explain", "pause", "resume"])
def test_without_a_journal_nothing_is_made_up(fleetwarden: Callable[..., Result], tmp_path: Path, command: str) -> None:
    result = fleetwarden(command)
    assert result.exit_code == 2
    assert f"there is no journal at {tmp_path / 'journal.sqlite'}" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("command", "approved"), [("approve", True), ("reject", False)])
def test_an_answer_is_written_with_who_gave_it_and_only_the_first_counts(
    record: StoredJournal,
    hung: Diagnosis,
    fleetwarden: Callable[..., Result],
    command: str,
    approved: bool,  # noqa: FBT001 - a table
) -> None:
    write(record, Opened(NAME, T, hung))
    result = fleetwarden(command, NAME, "--by", "ada")
    assert result.exit_code == 1
    assert "has not asked for anything" in result.stderr
    write(record, ApprovalAsked(NAME, T + 1, FAR, "may I?"))
    result = fleetwarden(command, NAME[:14], "--by", "ada", "--json")
    assert result.exit_code == 0
    assert json.loads(result.output) == {"incident": NAME, "answer": "accepted", "by": "ada"}
    approval = record.incident(NAME).approval
    assert (approval.approved, approval.by) == (approved, "ada")
    result = fleetwarden("approve", NAME, "--by", "bob")
    assert result.exit_code == 1
    assert "somebody answered before" in result.stderr


def test_an_expired_request_cannot_be_answered(
    record: StoredJournal, hung: Diagnosis, fleetwarden: Callable[..., Result]
) -> None:
    write(record, Opened(NAME, T, hung), ApprovalAsked(NAME, T + 1, T + 2, "may I?"))
    result = fleetwarden("approve", NAME, "--by", "ada")
    assert result.exit_code == 1
    assert "has expired" in result.stderr
    assert fleetwarden("approve", NAME, "--by", " ").exit_code == 2


def test_pause_and_resume_turn_the_big_red_button_with_who_and_why(
    record: StoredJournal, fleetwarden: Callable[..., Result]
) -> None:
    assert fleetwarden("pause", "--why", "a rollout", "--by", "ada").exit_code == 0
    switch = record.switch(PAUSE)
    assert (switch.on, switch.by, switch.why) == (True, "ada", "a rollout")
    again = fleetwarden("pause", "--by", "bob")
    assert again.exit_code == 0
    assert "it was paused already" in again.output
    assert "by ada: a rollout" in again.output
    resumed: dict[str, Any] = json.loads(fleetwarden("resume", "--by", "bob", "--json").output)
    assert (resumed["switch"], resumed["on"], resumed["by"]) == ("pause", False, "bob")
    assert record.switch(PAUSE).on is False


def test_the_journal_may_be_elsewhere(record: StoredJournal, hung: Diagnosis, tmp_path: Path) -> None:
    write(record, Opened(NAME, T, hung))
    for place in (str(tmp_path / "journal.sqlite"), f"sqlite:///{tmp_path / 'journal.sqlite'}"):
        result = CliRunner().invoke(app, ["incidents", "--journal", place, "--json"])
        assert [row["incident"] for row in json.loads(result.output)] == [NAME]
    result = CliRunner().invoke(app, ["incidents", "--journal", "no such://thing"])
    assert result.exit_code == 2
    assert "URL cannot be read" in result.stderr


def test_in_the_wardens_own_container_the_environment_tells_where_the_journal_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    open_journal(elsewhere / "journal.sqlite").close()
    monkeypatch.setenv("FLEETWARDEN_STATE_DIR", str(elsewhere))
    told = CliRunner().invoke(app, ["incidents"])
    assert (told.exit_code, "nothing is open" in told.output) == (0, True)
    (tmp_path / "url").write_text(f"sqlite:///{elsewhere / 'journal.sqlite'}")
    monkeypatch.setenv("FLEETWARDEN_STATE_DIR", str(tmp_path / "nothing"))
    assert CliRunner().invoke(app, ["incidents"]).exit_code == 2
    monkeypatch.setenv("FLEETWARDEN_JOURNAL__URL_FILE", str(tmp_path / "url"))
    assert CliRunner().invoke(app, ["incidents"]).exit_code == 0
    assert CliRunner().invoke(app, ["incidents", "--state-dir", str(tmp_path / "nothing")]).exit_code == 2
