"""The step benchmark at a tiny size: what it prints, and that its fleet is what it says."""

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from rich.console import Console
from step import exponent, main, table
from synthetic_fleet import BEGIN, SyntheticFleet
from typer.testing import CliRunner


@pytest.fixture(scope="module")
def result(benchmarks: Path) -> dict[str, Any]:
    """What the script prints for two tiny fleets."""
    words = ("--engines", "60", "--engines", "120", "--ticks", "40", "--repeats", "2", "--json")
    done = subprocess.run([sys.executable, str(benchmarks / "step.py"), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_it_prints_time_and_memory_of_every_stage_and_size_under_its_documented_keys(result: dict[str, Any]) -> None:
    keys = {"benchmark", "data", "interval_s", "load_average", "exponent", "within_target", "rows"}
    assert result.keys() == keys
    assert (result["benchmark"], result["data"], result["within_target"]) == ("step", "synthetic", True)
    assert [row["engines"] for row in result["rows"]] == [60, 120]
    for row in result["rows"]:
        assert row.keys() == {
            *("engines", "signals", "ticks", "repeats", "stages", "step", "peak_rss_mib", "window_mib"),
            *("findings", "incidents"),
        }
        assert (row["signals"], row["ticks"], row["repeats"]) == (25, 40, 2)
        assert row["stages"].keys() == {"observe", "detect", "diagnose", "decide"}
        for spread in (*row["stages"].values(), row["step"]):
            assert spread.keys() == {"median_s", "min_s", "max_s"}
            assert 0 <= spread["min_s"] <= spread["median_s"] <= spread["max_s"]
        assert row["step"]["median_s"] > 0
        assert row["peak_rss_mib"] > row["window_mib"] > 0
        assert row["findings"] >= row["incidents"] >= 3  # something must be there to diagnose and to decide on


def test_the_table_says_the_same_and_that_its_data_are_synthetic(result: dict[str, Any]) -> None:
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(table(result))
    told = console.export_text()
    assert "synthetic" in told
    for row in result["rows"]:
        assert f"{row['step']['median_s']:.3f}" in told
        assert f"{row['peak_rss_mib']:,.0f} MiB" in told


@pytest.mark.parametrize("words", [("--engines", "1"), ("--ticks", "1"), ("--repeats", "0"), ("--nonsense",)])
def test_sizes_that_make_no_sense_are_bad_usage(words: tuple[str, ...]) -> None:
    app = typer.Typer()
    app.command()(main)
    assert CliRunner().invoke(app, words).exit_code == 2


def test_the_synthetic_fleet_goes_on_from_tick_to_tick_and_breaks_when_told() -> None:
    fleet = SyntheticFleet(40, break_at=BEGIN + 4.0)
    readings = [fleet.reading(BEGIN + 2.0 * tick) for tick in range(4)]
    hung, dead = fleet.faults["hung"], fleet.faults["dead"]
    steps = np.array([reading.values["engine.steps"] for reading in readings])
    healthy = [row for row in range(40) if row not in (hung, dead)]

    assert (np.diff(steps[:, healthy], axis=0) >= 0).all()
    assert (np.diff(steps[:, healthy], axis=0) > 0).mean() > 0.9
    assert steps[3, hung] == steps[2, hung] == steps[1, hung]
    assert np.isnan(steps[2:, dead]).all()
    assert [reading.values["scrape.up"][dead] for reading in readings] == [1.0, 1.0, 0.0, 0.0]
    for reading in readings:
        for told in reading.histograms.values():
            known = ~np.isnan(told.counts[:, -1])
            assert (np.diff(told.counts[known], axis=1) >= 0).all()


def test_the_same_seed_draws_the_same_fleet() -> None:
    first, second = (SyntheticFleet(20, seed=3).reading(BEGIN) for _ in range(2))
    assert first.values.keys() == second.values.keys()
    assert all(np.array_equal(first.values[name], second.values[name], equal_nan=True) for name in first.values)


@pytest.mark.parametrize(("cost", "expected"), [(lambda n: n * 1e-5, 1.0), (lambda n: n * n * 1e-9, 2.0)])
def test_the_exponent_tells_linear_from_quadratic(cost: Callable[[int], float], expected: float) -> None:
    rows = [{"engines": n, "step": {"median_s": cost(n)}} for n in (100, 1_000, 10_000, 40_000)]
    assert exponent(rows) == pytest.approx(expected, abs=0.01)
    assert exponent(rows[:1]) is None
