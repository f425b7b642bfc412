"""Freed memory is kept where the C library can, and its lack stops nothing."""

import ctypes
import sys

import pytest

from agent.memory import keep_freed_memory


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"), reason="only glibc has mallopt")
def test_glibc_takes_what_is_asked() -> None:
    assert keep_freed_memory()


def test_a_c_library_without_it_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_such(_: None) -> object:
        return object()

    monkeypatch.setattr(sys.modules["agent.memory"].ctypes, "CDLL", none_such)
    assert not keep_freed_memory()
