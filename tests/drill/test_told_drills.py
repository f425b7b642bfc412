"""How a drill's result is told: a Slack message, notes in the journal, a Chaos Toolkit journal."""

import pytest
from scripted_fleet import HANG, Life, ScriptedFleet, drill

from agent.cli.runbook import shipped_verbs
from agent.drill import wording
from agent.drill.card import Card, Verdict
from agent.drill.chaos_journal import passed, to_journal
from agent.drill.runner import Means, run_drill
from agent.drill.store import DrillStore
from agent.drill.telling import story_of, tell
from agent.incident import IncidentState
from agent.report.notice import Delivery, DeliveryStatus, Manner, Notice
from agent.report.slack_blocks import message


class Heard:
    """A sink that remembers."""

    def __init__(self, manner: Manner) -> None:
        self.name, self.manner, self.patience = manner.value, manner, 0.0
        self.notices: list[Notice] = []

    def deliver(self, notice: Notice) -> Delivery:
        self.notices.append(notice)
        return Delivery(DeliveryStatus.DELIVERED)

    def close(self) -> None:
        """Nothing is open."""


def card_of(life: Life, tmp_path_factory: pytest.TempPathFactory) -> Card:
    store = DrillStore(tmp_path_factory.mktemp("told"))
    return run_drill(drill(), ScriptedFleet((life,)), Means(store, shipped_verbs(), lambda _line: None))


@pytest.fixture
def good(tmp_path_factory: pytest.TempPathFactory) -> Card:
    return card_of(Life(), tmp_path_factory)


@pytest.fixture
def bad(tmp_path_factory: pytest.TempPathFactory) -> Card:
    return card_of(Life(state=IncidentState.ESCALATED), tmp_path_factory)


def test_slack_is_told_once_and_who_hears_transitions_is_left_to_the_journal(good: Card) -> None:
    stories, transitions = Heard(Manner.STORIES), Heard(Manner.TRANSITIONS)
    told = tell(good, [stories, transitions])
    assert [name for name, _ in told] == ["stories"]
    assert (len(stories.notices), transitions.notices) == (1, [])
    text = str(message(story_of(good), "local"))
    assert "Drill hang (engine-hang on engine/sim-" in text
    assert "passed" in text
    assert "found after 10 s and called engine.hung" in text


def test_a_failed_drill_asks_for_a_person_and_says_why(bad: Card) -> None:
    story = story_of(bad)
    assert story.needs_person
    assert any("it is escalated" in line for line in story.why)


def test_the_note_bears_the_numbers(good: Card) -> None:
    note = wording.finished_note(good)
    assert note.kind == "drill.finished"
    assert (note.facts["verdict"], note.facts["detected_after"], note.facts["recovered_after"]) == ("passed", 10.0, 60.0)


def test_a_journal_of_a_failed_drill_deviates_although_it_completed(good: Card, bad: Card) -> None:
    one, other = to_journal(good, drill()), to_journal(bad, drill())
    assert (one["status"], other["status"]) == ("completed", "completed")
    assert (one["deviated"], other["deviated"]) == (False, True)
    assert (passed(one), passed(other)) == (True, False)
    assert one["experiment"]["title"] == HANG["name"]


@pytest.mark.parametrize("verdict", [Verdict.NOT_STEADY, Verdict.ABORTED, Verdict.INTERRUPTED])
def test_what_did_not_come_to_its_end_did_not_pass(good: Card, verdict: Verdict) -> None:
    assert not passed(to_journal(good.model_copy(update={"verdict": verdict}), None))
