"""The benchmark of the fleet in virtual time at a tiny size: what it prints."""

import json
import subprocess
import sys
from pathlib import Path


def test_it_prints_the_speed_of_every_size_under_its_documented_keys(benchmarks: Path) -> None:
    words = ("--engines", "4", "--engines", "2", "--repeats", "1")
    script = [sys.executable, str(benchmarks / "virtual_fleet.py"), *words]
    told = json.loads(subprocess.run([*script, "--json"], capture_output=True, text=True, check=True).stdout)
    assert told.keys() == {"benchmark", "data", "tick_s", "rows", "load_average"}
    assert (told["benchmark"], told["data"], told["tick_s"]) == ("virtual_fleet", "simulated", 1.0)
    assert [row["engines"] for row in told["rows"]] == [2, 4]
    for row in told["rows"]:
        assert row.keys() == {"engines", "repeats", "requests_per_s", "times_real_time", "times_real_time_read"}
        alone, read = row["times_real_time"], row["times_real_time_read"]
        assert 0 < alone["min"] <= alone["median"] <= alone["max"]
        assert read["median"] <= alone["median"]
    shown = subprocess.run(script, capture_output=True, text=True, check=True).stdout
    assert "with a reading every 5 s" in shown
