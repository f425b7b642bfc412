"""Clauses made for the record, as a person reads them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.report.phrases import SYMPTOMS
from agent.report.plainly import plainly
from agent.report.wording import clause, duration, sentence
from detectors.finding import Symptom


@pytest.mark.parametrize(
    ("record", "plain"),
    [
        ("`ready` is true (ready = true)", "ready"),
        ("`ready` is false (ready = false)", "not as required: not ready"),
        (
            '`slo["success"] >= goal["success"]` is true (slo["success"] = 1, goal["success"] = 0.95)',
            "success 1 (goal 0.95)",
        ),
        (
            '`slo["ttft"] <= goal["ttft"]` is false (slo["ttft"] = 3.2, goal["ttft"] = 2)',
            "not as required: ttft 3.2 (goal 2)",
        ),
        (
            '`signal["scrape.up"] == 1.0` is unreadable (signal["scrape.up"] = not read)',
            "cannot be told: scrape.up not read",
        ),
        ("`no numbers` is true", "`no numbers` is true"),
        ("run `fleetwarden resume` now (it is paused)", "run `fleetwarden resume` now (it is paused)"),
        (
            "it should show batch.full or ttft.raised and does not",
            'it should show "the batch is full" or "first tokens come late" and does not',
        ),
        ("door.in_flight was 3", "door.in_flight was 3"),
    ],
)
def test_a_clause_of_the_record_becomes_plain_words(record: str, plain: str) -> None:
    assert plainly(record) == plain


@given(st.text(max_size=200))
def test_any_text_is_taken(text: str) -> None:
    assert isinstance(plainly(text), str)


@given(st.text(max_size=3_000), st.integers(10, 500))
def test_a_clause_is_one_line_of_bounded_length(text: str, limit: int) -> None:
    line = clause(text, limit)
    assert len(line) <= limit
    assert not set(line) & set("\n\r\t")


def test_every_symptom_has_words_of_its_own() -> None:
    assert set(SYMPTOMS) == set(Symptom)


@pytest.mark.parametrize(
    ("seconds", "says"),
    [
        (0, "0 s"),
        (0.4, "0 s"),
        (9, "9 s"),
        (60, "1 min"),
        (125, "2 min 5 s"),
        (3_600, "1 h"),
        (3_661, "1 h 1 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_a_span_is_said_in_the_units_that_matter(seconds: float, says: str) -> None:
    assert duration(seconds) == says


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("it broke", "It broke."),
        ("engine-hung may run", "engine-hung may run."),
        ("Done!", "Done!"),
        ("", ""),
        (" a \n b ", "A b."),
    ],
)
def test_a_sentence_begins_large_unless_it_begins_with_a_name(text: str, says: str) -> None:
    assert sentence(text) == says
