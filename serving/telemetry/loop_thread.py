"""An event loop on a thread of its own, so that synchronous ports can be served by asynchronous code."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

_LAST_TURNS = 5


class LoopThread:
    """Runs coroutines on its own loop. The thread is a daemon: a stuck coroutine never keeps the process alive."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()
        self._closed = False

    @property
    def closed(self) -> bool:
        """True once close() was called."""
        return self._closed

    def run(self, work: Coroutine[Any, Any, T], timeout: float) -> T:
        """The result of `work`. Raises TimeoutError after `timeout` seconds, having cancelled it, and whatever it raises."""
        if self._closed:
            work.close()
            raise RuntimeError("the loop's thread was closed")
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout)
        except TimeoutError:
            future.cancel()
            raise

    def close(self, last: Coroutine[Any, Any, object] | None = None, timeout: float = 5.0) -> None:
        """Run `last`, cancel what still runs, and end the thread. Closing again does nothing."""
        if self._closed:
            if last is not None:
                last.close()
            return
        self._closed = True
        ending = asyncio.run_coroutine_threadsafe(_ended(last), self._loop)
        try:
            ending.result(timeout)
        except TimeoutError:
            ending.cancel()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout)
            if not self._thread.is_alive():
                self._loop.close()


async def _ended(last: Coroutine[Any, Any, object] | None) -> None:
    if last is not None:
        await last
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    for _ in range(_LAST_TURNS):  # a transport that was closed lets go of its socket one turn later
        await asyncio.sleep(0)
