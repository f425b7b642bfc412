"""Sums over blocks of time are the same by either way of adding them up."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors import statistics


@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 90), st.floats(1.0, 40.0), st.floats(0.0, 12.0))
def test_a_few_rows_are_added_up_as_many_are(seed: int, ticks: int, seconds: float, late: float) -> None:
    rng = np.random.default_rng(seed)
    values = rng.uniform(0.0, 100.0, (5, ticks))
    values[rng.uniform(size=values.shape) < 0.2] = np.nan
    times = np.sort(rng.uniform(0.0, 300.0, ticks))
    now = float(times[-1]) + late
    few = statistics.blocks(values, times, now, seconds)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(statistics, "FEW_ROWS", 0)
        many = statistics.blocks(values, times, now, seconds)
    np.testing.assert_allclose(few[0], many[0])
    np.testing.assert_array_equal(few[1], many[1])
