"""Moments and lengths of time as people write them, and lines thinned for a page."""

import math
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.replay.drawing import Bar, Scale, chart, lane
from agent.replay.span import moment, seconds
from agent.replay.traces import POINTS, thinned

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("now", NOW),
        ("30m", NOW - 1_800.0),
        ("-2h", NOW - 7_200.0),
        ("1.5d", NOW - 129_600.0),
        ("1795965190", 1_795_965_190.0),
        ("2026-11-29T15:13:10Z", 1_795_965_190.0),
        ("2026-11-29T16:13:10+01:00", 1_795_965_190.0),
        ("2026-11-29 15:13:10", 1_795_965_190.0),
    ],
)
def test_moments(text: str, at: float) -> None:
    assert moment(text, NOW) == at


@given(at=st.datetimes(min_value=datetime(1990, 1, 1), max_value=datetime(2100, 1, 1)))  # noqa: DTZ001 - the zone is added
def test_every_moment_that_is_written_out_reads_back(at: datetime) -> None:
    told = at.replace(tzinfo=UTC)
    assert moment(told.isoformat(), NOW) == told.timestamp()
    assert moment(repr(told.timestamp()), NOW) == told.timestamp()


@given(text=st.text(max_size=12))
def test_whatever_is_typed_is_a_finite_moment_or_refused_with_how_to_write_one(text: str) -> None:
    try:
        told = moment(text, NOW)
    except ValueError:
        with pytest.raises(ValueError, match="write it as"):
            moment(text, NOW)
    else:
        assert math.isfinite(told)


@pytest.mark.parametrize(("text", "length"), [("90", 90.0), ("90s", 90.0), ("10m", 600.0), ("2h", 7_200.0)])
def test_lengths_of_time(text: str, length: float) -> None:
    assert seconds(text) == length


@pytest.mark.parametrize("text", ["", "0", "-5", "-5m", "nan", "inf", "soon", "1w"])
def test_no_lengths_of_time(text: str) -> None:
    with pytest.raises(ValueError, match="90s"):
        seconds(text)


@settings(deadline=None)
@given(
    values=st.lists(st.one_of(st.floats(-1e6, 1e6), st.just(math.nan)), min_size=1, max_size=4_000),
)
def test_thinned_lines_keep_their_highest_and_lowest_point_and_stay_in_order(values: list[float]) -> None:
    told = np.array(values)
    times, kept = thinned(np.arange(len(told), dtype=np.float64), told)
    assert len(kept) <= max(POINTS, min(len(told), POINTS))
    assert (np.diff(times) > 0).all()
    if not np.isnan(told).all():
        assert np.nanmax(kept) == np.nanmax(told)
        assert np.nanmin(kept) == np.nanmin(told)


def test_gaps_stay_gaps_and_text_is_escaped() -> None:
    scale = Scale(0.0, 10.0)
    drawn = chart("a<b", "", [(0, np.arange(5.0), np.array([1.0, math.nan, 2.0, 3.0, math.nan]))], [], scale)
    assert drawn.count("M") == 2
    assert "a&lt;b" in drawn
    shown = lane("n", [Bar(0.0, 5.0, "<x>", "act", '"&', "id")], scale)
    assert "&lt;x&gt;" in shown
    assert "<x>" not in shown
