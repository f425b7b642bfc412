"""The KV cache as a pool of equal blocks, with prefix caching: what vLLM's block pool does, counted and not stored.

A block is free, in use, or idle: free for the taking but still holding a cached prefix until it is evicted, the least
recently used first. A full block of a prompt is named by a key that stands for all tokens up to its end.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Holding:
    """The blocks of one sequence: `keys` of cached prompt blocks in order, and `loose` blocks that nobody else can share."""

    keys: list[int] = field(default_factory=list)
    loose: int = 0

    @property
    def blocks(self) -> int:
        """How many blocks the sequence holds."""
        return len(self.keys) + self.loose


class BlockPool:
    """Counts the blocks of one engine. `capacity` may be lowered and raised while blocks are in use."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._loose = 0
        self._shared: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()

    @property
    def used(self) -> int:
        """Blocks that sequences hold; a shared block counts once."""
        return self._loose + len(self._shared)

    @property
    def free(self) -> int:
        """Blocks that could be handed out now, idle cached ones included. Never negative."""
        return max(0, self.capacity - self.used)

    @property
    def usage(self) -> float:
        """The share of blocks in use, 0 to 1. Above capacity (which was lowered meanwhile) it still reads 1."""
        return min(1.0, self.used / self.capacity) if self.capacity else 1.0

    def resize(self, capacity: int) -> None:
        """Change how many blocks there are; blocks in use stay in use until their sequences let go."""
        self.capacity = capacity
        self._evict()

    def match(self, keys: Sequence[int]) -> int:
        """How many leading `keys` are cached."""
        for count, key in enumerate(keys):
            if key not in self._shared and key not in self._idle:
                return count
        return len(keys)

    def idle_among(self, keys: Sequence[int]) -> int:
        """How many of `keys` are idle: adopting them takes that many free blocks."""
        return sum(key in self._idle for key in keys)

    def adopt(self, holding: Holding, keys: Sequence[int]) -> None:
        """Give a sequence the cached blocks `keys`, which `match` has found."""
        for key in keys:
            if key in self._idle:
                del self._idle[key]
                self._shared[key] = 0
            self._shared[key] += 1
            holding.keys.append(key)

    def grow(self, holding: Holding, blocks: int) -> bool:
        """Grow a holding to `blocks` blocks. False, and nothing done, where the pool has too few."""
        wanted = blocks - holding.blocks
        if wanted <= 0:
            return True
        if wanted > self.free:
            return False
        holding.loose += wanted
        self._loose += wanted
        self._evict()
        return True

    def publish(self, holding: Holding, keys: Sequence[int]) -> None:
        """Cache the prompt blocks that are full by now: `keys` are the sequence's keys so far, from the first block on.

        A key that another sequence has published already keeps its block: the duplicate stays loose, and so do the
        blocks after it, for a prefix is only worth something without a gap.
        """
        for key in keys[len(holding.keys) :]:
            if holding.loose == 0 or key in self._shared or key in self._idle:
                return
            holding.loose -= 1
            self._loose -= 1
            self._shared[key] = 1
            holding.keys.append(key)

    def release(self, holding: Holding) -> None:
        """Take all blocks back. Cached ones become idle, the end of the prefix to be evicted first."""
        self._loose -= holding.loose
        holding.loose = 0
        for key in reversed(holding.keys):
            self._shared[key] -= 1
            if self._shared[key] == 0:
                del self._shared[key]
                self._idle[key] = None
        holding.keys.clear()
        self._evict()

    def forget(self) -> bool:
        """Drop the prefix cache. False, and nothing done, while any block is in use, as in vLLM."""
        if self.used:
            return False
        self._idle.clear()
        return True

    def _evict(self) -> None:
        while self._idle and len(self._idle) > self.free:
            self._idle.popitem(last=False)
