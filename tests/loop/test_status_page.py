"""The status page: a blank for what was not measured, and a word for how each engine stands."""

from pathlib import Path

import numpy as np
import pytest

from agent import status as page
from serving.fleet.topology import EngineFacts, Topology
from serving.telemetry.columns import SignalMatrix
from serving.telemetry.window import Window

NAN = np.nan
TIMES = np.arange(100.0, 121.0, 2.0)


def _window(**latest: float) -> Window:
    """One engine whose signals (dots as underscores doubled) stood at these values all the time."""
    topology = Topology([EngineFacts("e-0", "http://127.0.0.1:1", "m")])
    taken = TIMES[None, :]
    signals = {name.replace("__", "."): SignalMatrix(np.full_like(taken, value), taken) for name, value in latest.items()}
    return Window(now=120.0, topology=topology, times=TIMES, signals=signals)


@pytest.mark.parametrize(
    ("latest", "state"),
    [
        ({}, "unseen"),
        ({"scrape__up": NAN}, "unseen"),
        ({"scrape__up": 0.0, "door__drained": 1.0}, "down"),
        ({"scrape__up": 1.0, "door__drained": 1.0, "door__ejected": 1.0}, "drained"),
        ({"scrape__up": 1.0, "door__drained": 0.0, "door__ejected": 1.0}, "ejected"),
        ({"scrape__up": 1.0, "door__drained": 0.0, "door__ejected": 0.0}, "serving"),
        ({"scrape__up": 1.0}, "serving"),
    ],
)
def test_how_an_engine_stands_is_said_in_one_word(latest: dict[str, float], state: str) -> None:
    (row,) = page.engine_rows(_window(**latest), ())
    assert row.state == state


def test_what_was_not_measured_is_blank_and_never_zero() -> None:
    (row,) = page.engine_rows(_window(engine__running=0.0, engine__waiting=NAN), ())
    assert row.running == 0.0
    assert row.waiting is None
    assert row.kv_usage is None
    assert row.ttft_s is None


def test_the_page_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    rows = page.engine_rows(_window(scrape__up=1.0), ())
    seen = page.FleetStatus(
        at=120.0, fleet="f", autonomy="auto", paused="", breaker="", engines=rows, incidents=[], sources=[]
    )
    assert page.read(tmp_path) is None
    page.write(seen, tmp_path)
    assert page.read(tmp_path) == seen
