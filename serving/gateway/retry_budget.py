"""The retry budget: how many tries may be second tries.

Retries without a bound turn one slow engine into an overload of the others (each retried prompt is prefilled again). A
token bucket: every request puts in `ratio`, every retry takes one out, and at most `burst` are kept for the moment an
engine dies with many requests waiting on it.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class RetryBudget:
    """The bucket, as a value. `ratio`: retries allowed for each request; `burst`: the most that can be saved up."""

    tokens: float = 100.0
    ratio: float = 0.2
    burst: float = 100.0

    def after_request(self) -> "RetryBudget":
        """A new request came in."""
        return replace(self, tokens=min(self.burst, self.tokens + self.ratio))

    def spend(self) -> "RetryBudget | None":
        """The bucket after one retry, or None when the budget is spent."""
        return replace(self, tokens=self.tokens - 1.0) if self.tokens >= 1.0 else None
