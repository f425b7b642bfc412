"""A stand-in for a tokenizer and a language model: texts become token ids, and a seed becomes the same words every time."""

import re
import zlib
from collections.abc import Sequence

VOCABULARY = 32_768

# A word with the space before it, in pieces of eight letters, is a token; so is each other character.
_PIECES = re.compile(r" ?\w{1,8}|\s|[^\w\s]")

_WORDS = (
    *("the", "a", "one", "that", "river", "stone", "light", "window", "engine", "paper", "garden", "morning"),
    *("small", "quiet", "green", "early", "long", "bright", "second", "open", "steady", "plain"),
    *("moves", "waits", "turns", "holds", "carries", "begins", "answers", "rests", "grows", "returns"),
    *("and", "or", "then", "while", "under", "over", "before", "after", "without", "toward", "again", "slowly"),
)


def token_ids(text: str) -> list[int]:
    """The token ids of `text`, at least one. Equal pieces have equal ids on every machine."""
    return [zlib.crc32(piece.encode()) % VOCABULARY for piece in _PIECES.findall(text)] or [0]


def pieces(text: str) -> list[str]:
    """The texts of the tokens of `text`."""
    return _PIECES.findall(text) or [""]


def prefix_keys(tokens: Sequence[int], block_size: int) -> tuple[int, ...]:
    """One key per full block of `tokens`, each standing for all tokens up to the end of its block."""
    keys = []
    key = 0
    for end in range(block_size, len(tokens) + 1, block_size):
        key = hash((key, tuple(tokens[end - block_size : end])))
        keys.append(key)
    return tuple(keys)


def voice_of(tokens: Sequence[int], seed: int) -> int:
    """A number on which the words generated for a prompt depend."""
    return zlib.crc32(repr((seed, *tokens[-256:], len(tokens))).encode())


def word(voice: int, index: int) -> str:
    """The `index`-th generated token of a request with that voice, as text."""
    chosen = _WORDS[zlib.crc32(f"{voice}:{index}".encode()) % len(_WORDS)]
    return chosen if index == 0 else f" {chosen}"


def tokens_until(voice: int, limit: int, stops: Sequence[str]) -> int | None:
    """After how many of `limit` tokens the generated text contains one of `stops`; None where it never does."""
    longest = max(map(len, stops), default=0)
    tail = ""
    for index in range(limit):
        tail += word(voice, index)
        if any(stop in tail for stop in stops):
            return index + 1
        tail = tail[-longest:]
    return None
