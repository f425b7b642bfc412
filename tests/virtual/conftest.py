"""The calibration is a benchmark beside the packages; its modules are imported from where they lie."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "calibration"))
