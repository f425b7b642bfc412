"""Moments as people write them on a command line: `2026-11-29T15:13`, `1795965190`, `30m` (ago), `now`."""

import math
import re
from datetime import UTC, datetime

_SPAN = re.compile(r"-?(\d+(?:\.\d+)?)\s*([smhd])")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_HOW = "write it as in 2026-11-29T15:13:00Z (UTC unless it says otherwise), 1795965190, 30m (so long ago) or now"


def moment(text: str, now: float) -> float:
    """The moment that `text` means, in Unix seconds. Raises ValueError, saying how to write one."""
    told = text.strip()
    if told == "now":
        return now
    ago = _SPAN.fullmatch(told)
    if ago is not None:
        return now - float(ago[1]) * _SECONDS[ago[2]]
    try:
        if math.isfinite(number := float(told)):
            return number
    except ValueError:
        pass
    try:
        written = datetime.fromisoformat(told)
    except ValueError:
        raise ValueError(f"{text!r} is not a moment: {_HOW}") from None
    return (written if written.tzinfo is not None else written.replace(tzinfo=UTC)).timestamp()


def seconds(text: str) -> float:
    """A length of time such as `90`, `90s`, `10m`, `2h`, in seconds. Raises ValueError."""
    span = _SPAN.fullmatch(text.strip())
    if span is not None and not text.strip().startswith("-"):
        return float(span[1]) * _SECONDS[span[2]]
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 < found < float("inf"):
        raise ValueError(f"{text!r} is not a length of time: write it as in 90s, 10m or 2h")
    return found
