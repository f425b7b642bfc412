"""Running what is asynchronous beside a test that is not."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TypeVar

T = TypeVar("T")
START_S = 20.0


@contextmanager
def in_background(context: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Enter `context` in an event loop of another thread, and leave it there at the end."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        entered = asyncio.run_coroutine_threadsafe(context.__aenter__(), loop).result(START_S)
        try:
            yield entered
        finally:
            asyncio.run_coroutine_threadsafe(context.__aexit__(None, None, None), loop).result(START_S)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(START_S)
        loop.close()
