"""Signals while a fault is at work: what is broken on purpose is mended before this process ends. Main thread only."""

import contextlib
import signal
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any, NoReturn


@contextlib.contextmanager
def ending_by_exception() -> Iterator[None]:
    """Within, SIGTERM and SIGHUP raise SystemExit, so that `finally` runs; Ctrl-C raises KeyboardInterrupt by itself."""

    def leave(number: int, _frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    with _handlers({signal.SIGTERM: leave, signal.SIGHUP: leave}):
        yield


@contextlib.contextmanager
def deaf() -> Iterator[None]:
    """Within, no polite signal ends this process: an undo is not to be cut off by a second Ctrl-C."""
    with _handlers(dict.fromkeys((signal.SIGTERM, signal.SIGHUP, signal.SIGINT), signal.SIG_IGN)):
        yield


@contextlib.contextmanager
def _handlers(wanted: Mapping[signal.Signals, Any]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number, handler in wanted.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
