"""What a Slack message says and how it looks: the golden files show it as a person would read it.

After a change that is meant, run with FLEETWARDEN_TEST_REWRITE_GOLDEN=1 and read the difference.
"""

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from told_lives import HUNG, LIVES, NIGHT, Life, approval_request, done, escalated_hang, repaired_hang

from agent.incident import Ending, IncidentState, fold
from agent.report.layout import plain
from agent.report.phrases import CAUSES
from agent.report.slack_blocks import FALLBACK_LIMIT, HEADER_LIMIT, SECTION_LIMIT, escaped, follow_up, message
from agent.report.story import Deed, Story
from serving.fleet.entity import Entity

GOLDEN = Path(__file__).parent / "golden"
DATE = re.compile(r"<!date\^(\d+)\^[^|>]*\|([^>]*)>")


def as_read(payload: dict[str, Any]) -> str:
    """A payload's blocks as text: dates by their fallback, entities resolved, one empty line between blocks."""
    parts = []
    for block in payload["blocks"]:
        text = block["text"]["text"] if "text" in block else " ".join(element["text"] for element in block["elements"])
        frame = {"header": "# {}", "context": "[{}]"}.get(block["type"], "{}")
        parts.append(frame.format(DATE.sub(r"\2", text)))
    return "\n\n".join(parts).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&") + "\n"


def compare(name: str, text: str) -> None:
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("FLEETWARDEN_TEST_REWRITE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("name", LIVES)
def test_the_message_reads_as_its_golden_file_shows(name: str) -> None:
    life, advice = LIVES[name]
    compare(name, as_read(message(life().story(advice), "local")))


def test_a_follow_up_is_one_short_line_with_what_it_cost() -> None:
    compare("follow-up-repaired", as_read(follow_up(repaired_hang().story(), "local")))


def test_a_follow_up_that_needs_a_person_says_what_to_do() -> None:
    compare("follow-up-escalated", as_read(follow_up(escalated_hang().story(), "local")))


def test_a_message_of_a_repair_under_way_does_not_call_for_anybody() -> None:
    life = Life("inc-7", HUNG).begin(14, "engine-hung").act(14.1, 0.2, "door.drain", done("in rotation -> drained"))
    compare("under-way", as_read(message(life.story(), "local")))


def texts(payload: dict[str, Any]) -> list[str]:
    return [block["text"]["text"] if "text" in block else block["elements"][0]["text"] for block in payload["blocks"]]


def within_limits(payload: dict[str, Any]) -> None:
    assert len(payload["blocks"]) <= 50
    assert 0 < len(payload["text"]) <= FALLBACK_LIMIT
    for block, text in zip(payload["blocks"], texts(payload), strict=True):
        assert 0 < len(text) <= (HEADER_LIMIT if block["type"] == "header" else SECTION_LIMIT)
        if block["type"] != "header":
            assert not re.search(r"[<>]", DATE.sub("", text))
            assert not re.search(r"&(?!amp;|lt;|gt;)", text)
    assert not re.search(r"[<>]|&(?!amp;|lt;|gt;)", payload["text"])


anything = st.text(min_size=1, max_size=60)
long_lines = st.lists(st.one_of(anything, st.sampled_from(["&" * 1_500, "<!channel>" * 200, "x" * 3_100])), max_size=6).map(
    tuple
)


@settings(max_examples=40)
@given(long_lines, long_lines, anything, st.integers(0, 60))
def test_whatever_a_story_holds_its_message_keeps_slacks_limits_and_is_escaped(
    lines: tuple[str, ...], more: tuple[str, ...], headline: str, deeds: int
) -> None:
    done_things = tuple(Deed(NIGHT + n, lines[n % len(lines)] if lines else "did", "failed") for n in range(deeds))
    story = replace(
        escalated_hang().story(),
        headline=headline * 5,
        why=lines,
        ruled_out=more,
        done=done_things,
        todo=("Do.", *more),
        cost=headline,
    )
    within_limits(message(story, "local"))
    within_limits(follow_up(story, "local"))


@given(st.text(alphabet="&<>ab", max_size=200))
def test_escaping_can_be_undone(text: str) -> None:
    safe = escaped(text)
    assert safe.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&") == text


def test_too_many_deeds_leave_out_the_middle_and_say_so() -> None:
    story = replace(
        repaired_hang().story(), done=tuple(Deed(NIGHT + n, f"deed {n}", "failed: " + "x" * 100) for n in range(200))
    )
    (text,) = [text for text in texts(message(story, "local")) if text.startswith("*What was done*")]
    assert "deed 0:" in text
    assert "deed 199:" in text
    left = int(re.search(r"and (\d+) more in between", text).group(1))
    assert left + text.count("• <!date") == 200


def test_the_same_events_make_the_same_message() -> None:
    assert message(repaired_hang().story(), "local") == message(repaired_hang().story(), "local")


def test_the_fallback_tells_the_whole_story_as_plain_text() -> None:
    story = approval_request().story()
    assert message(story, "local")["text"] == plain(story)


def test_what_was_drained_and_not_put_back_is_named_when_a_person_takes_over() -> None:
    assert any("Engine sim-2 is still out of service" in line for line in escalated_hang().story().todo)
    assert not any("out of service" in line for line in repaired_hang().story().todo)


def test_a_rehearsal_says_that_nothing_was_touched() -> None:
    life = Life("inc-7", HUNG).begin(14, "engine-hung").act(14.1, 0.2, "door.drain", done("dry run: in rotation -> drained"))
    life.end(20, IncidentState.ESCALATED, Ending.GAVE_UP, "users are not served well again")
    story = life.story()
    assert "dry run: nothing was touched" in story.headline
    assert not any("out of service" in line for line in story.todo)


def test_advice_is_given_once_and_only_after_something_was_tried() -> None:
    advice = "Look at the log."
    tried = Life("inc-7", HUNG).begin(14, "engine-hung")
    tried.end(20, IncidentState.ESCALATED, Ending.GAVE_UP, "step restart failed")
    assert tried.story(advice).todo[:2] == ("Step restart failed.", "Look at the log.")
    said = Life("inc-7", HUNG).begin(14, "engine-hung")
    said.end(20, IncidentState.ESCALATED, Ending.GAVE_UP, f"2 of 2 attempts did not help. {advice}")
    assert sum(advice in line for line in said.story(advice).todo) == 1
    untried = Life("inc-7", HUNG).end(20, IncidentState.ESCALATED, Ending.GAVE_UP, "there is no runbook")
    assert not any(advice in line for line in untried.story(advice).todo)


def test_every_cause_of_the_catalogue_has_words_of_its_own() -> None:
    catalogue = (Path(__file__).parents[2] / "agent" / "diagnosis" / "causes.yaml").read_text()
    incidents = [part for part in catalogue.split("  - cause: ")[1:] if "incident: false" not in part]
    assert {part.split()[0] for part in incidents} <= set(CAUSES)


def test_an_unknown_cause_and_verb_are_still_told() -> None:
    life = (
        Life("inc-7", replace(HUNG, cause="gpu.melted"))
        .begin(14, "x")
        .act(15, 2, "gpu.cool", done(), Entity.engine("sim-2"))
    )
    story = life.story()
    assert "gpu.melted" in story.headline
    assert any("gpu.cool" in deed.text for deed in story.done)
    assert fold(life.events).cause == "gpu.melted"


def test_a_story_type_is_frozen() -> None:
    with pytest.raises(AttributeError):
        repaired_hang().story().headline = "x"  # type: ignore[misc]
    assert isinstance(repaired_hang().story(), Story)
