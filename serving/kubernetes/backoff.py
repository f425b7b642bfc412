"""How long to wait after failures in a row: doubling, with jitter, so that many clients do not come back as one."""

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """Seconds. A wait is drawn between half and the whole of the current span."""

    first: float = 0.5
    longest: float = 30.0


class Backoff:
    """Counts failures in a row."""

    def __init__(self, policy: BackoffPolicy, rng: Random) -> None:
        self._policy = policy
        self._rng = rng
        self._failures = 0

    def reset(self) -> None:
        """It worked."""
        self._failures = 0

    def after_failure(self, asked: float | None = None) -> float:
        """Seconds to wait now; at least what the server `asked` for."""
        span = min(self._policy.longest, self._policy.first * 2.0 ** min(self._failures, 32))
        self._failures += 1
        return max(asked or 0.0, self._rng.uniform(span / 2, span))
