"""Our hooks inside vLLM's processes: real garbage-collector pauses while a file asks for them, and the counter of experts.

vLLM calls `register` in each of its processes (entry point group vllm.general_plugins). With FLEETWARDEN_EXPERTS_PORT in the
environment it lets serving.engines.expert_counter count tokens per expert. Without FLEETWARDEN_GC_STALL_FILE it then returns
at once. With it, one daemon thread in the engine core and in each worker looks for that file.
While it exists, the thread keeps a heap of live objects, grown until a full collection lasts as long as asked, and collects
that often. The collector holds the interpreter lock, so the whole process stands still, as one with a leaking heap does.
Removing the file frees the heap.

Little but the standard library is imported here, for this runs inside an engine.
"""

import contextlib
import gc
import json
import os
import random
import sys
import threading
from pathlib import Path
from typing import NamedTuple

from serving.clock import Clock, SystemClock

FILE_VARIABLE = "FLEETWARDEN_GC_STALL_FILE"
EXPERTS_VARIABLE = "FLEETWARDEN_EXPERTS_PORT"
POLL_S = 0.5
# The collector visits each reference twice, and one to an object outside the processor's cache costs it about 10 ns. So
# references to shuffled leaves give a long pause for little memory: 8 bytes each, about 200 MB for 0.4 s.
LEAVES = 200_000
# However long a pause is asked for, the heap stays below about 800 MB a process.
MOST_BLOCKS = 500


class Wish(NamedTuple):
    """Pauses of about `pause_s` seconds, one every `every_s` seconds (from start to start)."""

    pause_s: float
    every_s: float


def register() -> None:
    """Called by vLLM in each of its processes. Does nothing unless the environment asks for one of the hooks."""
    if os.environ.get(EXPERTS_VARIABLE):
        from serving.engines import expert_counter  # noqa: PLC0415 - only where experts are to be counted

        expert_counter.install()
    path = os.environ.get(FILE_VARIABLE)
    if not path:
        return
    # The API server loads the hook too, and is left alone. A forked child inherits no thread and is not asked again.
    os.register_at_fork(after_in_child=lambda: start_thread(Path(path)))
    if _is_child():
        start_thread(Path(path))


def start_thread(path: Path) -> None:
    """Begin to watch `path` in a daemon thread of this process."""
    threading.Thread(target=_watch, args=(path, SystemClock()), name="fleetwarden-gc-stall", daemon=True).start()


def read_wish(path: Path) -> Wish | None:
    """What the file asks for, as {"pause_s": 0.4, "every_s": 3}; None when there is no file or it cannot be understood.

    With "group", it asks that process group only: an engine that was restarted meanwhile is another.
    """
    try:
        asked = json.loads(path.read_text(encoding="utf-8"))
        if asked.get("group", os.getpgrp()) != os.getpgrp():
            return None
        return Wish(min(5.0, max(0.01, float(asked["pause_s"]))), max(0.1, float(asked["every_s"])))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        print(f"fleetwarden gc-stall: {path} is ignored: {error!r}", file=sys.stderr)  # noqa: T201 - the engine's log is its stderr
        return None


class Heap:
    """Live objects whose collection takes a while."""

    def __init__(self) -> None:
        self._leaves: list[list[None]] = []
        self._blocks: list[list[list[None]]] = []

    def collect(self, wish: Wish, clock: Clock) -> float:
        """One full collection; the seconds it took. Then the heap is brought nearer to the size `wish.pause_s` needs."""
        begin = clock.monotonic()
        gc.collect()
        took = clock.monotonic() - begin
        if took < 0.9 * wish.pause_s and len(self._blocks) < MOST_BLOCKS:
            self._grow(1 + int(len(self._blocks) * min(1.0, wish.pause_s / max(took, 1e-3) - 1.0)))
        elif took > 1.2 * wish.pause_s:
            del self._blocks[int(len(self._blocks) * wish.pause_s / took) :]
        return took

    def free(self) -> None:
        """Give all of it back."""
        if self._leaves:
            self._leaves, self._blocks = [], []
            gc.collect()

    def _grow(self, blocks: int) -> None:
        if not self._leaves:
            self._leaves = [[] for _ in range(LEAVES)]
            random.shuffle(self._leaves)
        for _ in range(min(blocks, MOST_BLOCKS - len(self._blocks))):
            self._blocks.append(self._leaves.copy())


def _watch(path: Path, clock: Clock) -> None:
    heap = Heap()
    while True:
        wish = read_wish(path)
        if wish is None:
            heap.free()
            clock.sleep(POLL_S)
        else:
            took = heap.collect(wish, clock)
            clock.sleep(wish.every_s - took if took >= 0.5 * wish.pause_s else 0.1)  # while it still grows, go on soon


def _is_child() -> bool:
    with contextlib.suppress(ImportError):
        from multiprocessing import parent_process  # noqa: PLC0415 - only where the file is named

        return parent_process() is not None
    return False
