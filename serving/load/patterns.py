"""Patterns of load as data. Those that are faults bear the fault's name."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Lengths:
    """A log-normal spread of token counts around `median`, cut to `low`..`high`. `sigma` 0 gives the median always."""

    median: int
    sigma: float = 0.0
    low: int = 1
    high: int = 1_000_000

    def draw(self, rng: Random) -> int:
        """One length, in tokens."""
        length = round(self.median * math.exp(rng.gauss(0.0, self.sigma))) if self.sigma else self.median
        return max(self.low, min(self.high, length))


@dataclass(frozen=True, slots=True)
class Pattern:
    """A way of using the fleet.

    `rps` and `seconds` are what is used unless told otherwise; `factor` multiplies the rate. `give_up_s`: each client leaves
    so long after it asked, answered or not. `leave_together`: when arrivals end, every client still waiting leaves at once
    (otherwise they wait for their answers). `one_token`: every prompt repeats one token, the same in all, after a short
    beginning of its own.
    """

    name: str
    summary: str
    prompt: Lengths
    output: Lengths
    rps: float
    seconds: float
    factor: float = 1.0
    give_up_s: float | None = None
    leave_together: bool = False
    one_token: bool = False


# Short questions and answers: about 50 tokens in and 25 out, as in the recordings that the simulated engine is fitted to.
_PROMPT = Lengths(50, 0.5, 8, 256)
_OUTPUT = Lengths(25, 0.4, 4, 96)

PATTERNS: Mapping[str, Pattern] = MappingProxyType(
    {
        pattern.name: pattern
        for pattern in (
            Pattern("steady", "ordinary users, arriving independently of each other", _PROMPT, _OUTPUT, 4.0, 60.0),
            # 1,500 tokens are several scheduler steps of prefill each (vLLM's token budget for a step is 2,048 and shared).
            Pattern(
                "prefill-flood", "long prompts with short answers", Lengths(1500, 0.1, 1200, 1800), Lengths(8), 2.5, 60.0
            ),
            # 700 tokens hold a sequence slot and growing KV blocks for many seconds each.
            Pattern("kv-flood", "long generations", _PROMPT, Lengths(700, 0.1, 500, 900), 1.5, 60.0),
            Pattern("surge", "eight times the given rate of ordinary users", _PROMPT, _OUTPUT, 4.0, 60.0, factor=8.0),
            Pattern(
                "mass-cancel",
                "long generations fill the engines, then every client leaves at once",
                _PROMPT,
                Lengths(900),
                4.0,
                8.0,
                leave_together=True,
            ),
            # Within the 4,096 tokens that a simulated engine lets one be, prompt included: more than a minute of one slot.
            Pattern("endless-generation", "a generation that does not come to its end", _PROMPT, Lengths(3700), 1.0, 60.0),
            # A mixture of experts routes like tokens alike, so such prompts go to few experts. Answers are short, for their
            # tokens differ.
            Pattern(
                "hot-expert",
                "prompts that all repeat one token",
                Lengths(150, 0.2, 80, 300),
                Lengths(4),
                4.0,
                60.0,
                one_token=True,
            ),
            # A human's shortest patience; most first tokens take longer once a queue forms.
            Pattern("impatient-clients", "clients that leave after 0.2 s", _PROMPT, Lengths(200), 4.0, 60.0, give_up_s=0.2),
        )
    }
)
