"""What became of a load: counts by outcome and bounded spreads of times, whatever its length."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

# Bins grow by a twentieth, so a quantile read from them is within 2.5 % of the truth.
_GROWTH = math.log(1.05)
_LEAST_S = 1e-4


@dataclass(slots=True)
class Spread:
    """Times in bins of equal ratio."""

    bins: Counter[int] = field(default_factory=Counter)
    count: int = 0
    total: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self.bins[max(0, math.floor(math.log(max(seconds, _LEAST_S) / _LEAST_S) / _GROWTH))] += 1
        self.count += 1
        self.total += seconds

    def quantile(self, share: float) -> float | None:
        """The time that `share` (0 to 1) of them did not exceed, in seconds; None when there are none."""
        if not self.count:
            return None
        wanted, seen, last = share * self.count, 0, 0
        for number in sorted(self.bins):
            seen, last = seen + self.bins[number], number
            if seen >= wanted:
                break
        return _LEAST_S * math.exp((last + 0.5) * _GROWTH)

    def shown(self) -> dict[str, float | int | None]:
        """For the summary: count, mean and quantiles in seconds."""
        mean = self.total / self.count if self.count else None
        quantiles = {name: self.quantile(share) for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))}
        rounded = {name: None if value is None else round(value, 4) for name, value in {"mean": mean, **quantiles}.items()}
        return {"count": self.count, **rounded}


@dataclass(frozen=True, slots=True)
class Finished:
    """One request as its client saw it.

    `outcome`: ok; client_closed (left as the pattern says, or the load was ended); timeout; connection (refused, broken, or
    cut short); http_NNN (refused, or failed by an error event in the stream). `ttft` and `e2e` in seconds; `ttft` is None
    when nothing came.
    """

    outcome: str
    e2e: float
    ttft: float | None = None
    served_by: str | None = None


@dataclass(slots=True)
class Tally:
    """The summary so far."""

    sent: int = 0
    not_sent: int = 0
    in_flight: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    by_engine: Counter[str] = field(default_factory=Counter)
    ttft: Spread = field(default_factory=Spread)
    e2e: Spread = field(default_factory=Spread)

    @property
    def ok(self) -> int:
        """Requests answered whole."""
        return self.outcomes["ok"]

    @property
    def failed(self) -> int:
        """Requests that failed the client: neither answered whole nor left by the client itself."""
        return sum(self.outcomes.values()) - self.ok - self.outcomes["client_closed"]

    def add(self, finished: Finished) -> None:
        """Count one finished request."""
        self.outcomes[finished.outcome] += 1
        if finished.served_by is not None:
            self.by_engine[finished.served_by] += 1
        if finished.ttft is not None:
            self.ttft.add(finished.ttft)
        if finished.outcome == "ok":
            self.e2e.add(finished.e2e)

    def summary(self) -> Mapping[str, object]:
        """As plain JSON, with stable keys."""
        return {
            "sent": self.sent,
            "not_sent": self.not_sent,
            "ok": self.ok,
            "failed": self.failed,
            "outcomes": dict(sorted(self.outcomes.items())),
            "by_engine": dict(sorted(self.by_engine.items())),
            "ttft_s": self.ttft.shown(),
            "e2e_s": self.e2e.shown(),
        }

    def line(self, elapsed: float) -> str:
        """One line of progress."""
        p50, p95 = self.ttft.quantile(0.5), self.ttft.quantile(0.95)
        first = "no first token yet" if p50 is None or p95 is None else f"first token p50 {p50:.3f} s, p95 {p95:.3f} s"
        others = {name: n for name, n in sorted(self.outcomes.items()) if name != "ok"}
        rest = "".join(f", {n} {name}" for name, n in others.items())
        more = f", {self.not_sent} not sent" if self.not_sent else ""
        return f"{elapsed:.0f} s: {self.sent} sent, {self.in_flight} in flight, {self.ok} ok{rest}{more}; {first}"
