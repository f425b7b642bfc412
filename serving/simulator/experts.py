"""Which experts a simulated mixture-of-experts model sends its tokens to, and how many tokens each got. Pure.

A router looks at what a token stands for, which is mostly the token itself and partly what came before it. So a token goes
to the experts of its id, in each layer others, and a part of the tokens to experts of its id and place. Mixed prompts then
load all experts much alike, and prompts that repeat one token load few. Nothing here knows what is asked for.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from serving.simulator import words

BY_CONTEXT = 0.15
"""Part of the tokens routed by their place too. With it, prompts of one token load the hottest of 16 experts (2 active)
6.5 to 7.1 times the mean; a real Qwen3-MoE of that shape showed 6.5 to 7.0 (tests/recordings/vllm-0.32-c)."""


@dataclass(slots=True)
class _Going:
    """A request on its way: its prompt, the voice of its answer, and how many of its tokens were computed."""

    prompt: Sequence[int]
    voice: int
    done: int = 0

    def take(self, count: int) -> list[tuple[int, int]]:
        """The next `count` tokens as (token, place)."""
        places = range(self.done, self.done + count)
        self.done += count
        return [(self._token(place), place) for place in places]

    def _token(self, place: int) -> int:
        if place < len(self.prompt):
            return self.prompt[place]
        return words.token_ids(words.word(self.voice, place - len(self.prompt)))[0]


class ExpertCounts:
    """Tokens by layer and expert since the start. `layers`, `experts` in each, `active` of them for each token."""

    def __init__(self, layers: int, experts: int, active: int) -> None:
        self.counts = [[0] * experts for _ in range(layers)]
        self._active = active
        self._going: dict[str, _Going] = {}

    def begin(self, request: str, prompt: Sequence[int], voice: int) -> None:
        """A request with these prompt tokens will be computed; `voice` is that of its answer (serving.simulator.words)."""
        self._going[request] = _Going(prompt, voice)

    def end(self, request: str) -> None:
        """It is over."""
        self._going.pop(request, None)

    def count(self, scheduled: Mapping[str, int]) -> None:
        """A step computed so many tokens of each request. What the prefix cache saved is not told apart."""
        for request, tokens in scheduled.items():
            going = self._going.get(request)
            for token, place in going.take(tokens) if going is not None else ():
                for layer, counts in enumerate(self.counts):
                    for expert in experts_of(layer, token, _context(token, place), len(counts), self._active):
                        counts[expert] += 1


@lru_cache(maxsize=65_536)
def experts_of(layer: int, token: int, context: int, experts: int, active: int) -> tuple[int, ...]:
    """The `active` experts that a token goes to in a layer. Equal on every machine."""
    first = zlib.crc32(f"{layer}:{token}:{context}".encode())
    chosen: list[int] = []
    while len(chosen) < active:
        first, expert = zlib.crc32(first.to_bytes(4, "little")), first % experts
        if expert not in chosen:
            chosen.append(expert)
    return tuple(chosen)


def _context(token: int, place: int) -> int:
    """What of its surroundings a token is routed by: nothing (0) for most."""
    drawn = zlib.crc32(f"{token}@{place}".encode())
    return 1 + drawn % 256 if drawn / 2**32 < BY_CONTEXT else 0
