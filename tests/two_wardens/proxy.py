"""A TCP proxy that can be cut: nothing passes any more, nothing is lost, and all of it comes late when the cut is healed.

That is the cruellest kind of partition: what a leader sent before it gave up arrives after another took over.
"""

import socket
import threading
from contextlib import ExitStack, suppress
from typing import Self

CHUNK = 65_536
HOST = "127.0.0.1"


class CuttableProxy:
    """Forwards connections to a port of this machine. A context manager."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._passes = threading.Event()
        self._passes.set()
        self._end = ExitStack()
        self._listener = self._end.enter_context(socket.create_server((HOST, 0)))
        self._sockets: set[socket.socket] = set()
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._passes.set()
        self._listener.close()
        for one in tuple(self._sockets):
            _shut(one)

    def cut(self) -> None:
        """Let nothing pass."""
        self._passes.clear()

    def heal(self) -> None:
        """Let everything pass that waits, and all that comes."""
        self._passes.set()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        self._passes.wait()
        try:
            far = socket.create_connection((HOST, self._target))
        except OSError:
            near.close()
            return
        self._sockets |= {near, far}
        back = threading.Thread(target=self._pump, args=(far, near), daemon=True)
        back.start()
        self._pump(near, far)
        back.join()
        for one in (near, far):
            self._sockets.discard(one)
            one.close()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while part := source.recv(CHUNK):
                self._passes.wait()
                sink.sendall(part)
        self._passes.wait()
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


def _shut(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
