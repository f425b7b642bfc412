"""How long an engine step takes, and what makes it longer."""

import math
import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepTiming:
    """The duration of one step in seconds: a base, and a share per prefill token and per decoding sequence.

    The defaults are fitted to recordings of vLLM 0.32 with a two-layer model on two shared CPU cores: there the prefill of
    requests that did not queue took 17 to 23 ms for up to 100 prompt tokens, 31 ms for up to 200 and 437 ms for up to
    2000 (medians), and the median inter-token latency at light load was 12 ms. `jitter` is the standard deviation of the
    logarithm of a random factor on each step; `speed` divides all durations (a GPU twice as fast has 2).
    """

    base: float = 0.010
    per_prefill_token: float = 0.0002
    per_decode_sequence: float = 0.0004
    jitter: float = 0.08
    speed: float = 1.0

    def seconds(self, prefill_tokens: int, decode_sequences: int, rng: random.Random) -> float:
        """The duration of a step that computes so many prefill tokens and decodes for so many sequences."""
        work = self.base + self.per_prefill_token * prefill_tokens + self.per_decode_sequence * decode_sequences
        factor = math.exp(rng.gauss(0.0, self.jitter)) if self.jitter > 0 else 1.0
        return work * factor / self.speed


@dataclass(frozen=True, slots=True)
class Stalls:
    """Regular pauses in which nothing of the engine moves: for `pause` seconds at each `every` seconds from `since` on."""

    since: float
    pause: float
    every: float

    def end(self, start: float, work: float) -> float:
        """When work of `work` seconds that is begun at `start` ends. Work stands still inside a pause."""
        if start < self.since:
            before = self.since - start
            return start + work if work <= before else self.end(self.since, work - before)
        period = self.every
        index, offset = divmod(start - self.since, period)
        at = start
        if offset < self.pause:
            at = self.since + index * period + self.pause
        while True:
            room = self.since + (index + 1) * period - at
            if work <= room:
                return at + work
            work -= room
            index += 1
            at = self.since + index * period + self.pause
