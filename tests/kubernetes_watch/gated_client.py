"""A client whose way to the API server can be shut: no new call gets through, and watches under way are cut."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from serving.kubernetes.client import ClusterClient, Page
from serving.kubernetes.cluster_error import ClusterError
from serving.kubernetes.watch_stream import WatchStream


class GatedClient:
    """Passes calls on while open. `watched_from` are the versions at which watches began."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._shut = False
        self._streams: list[WatchStream] = []
        self.refusals: list[ClusterError] = []

    def shut(self) -> None:
        self._shut = True
        for stream in tuple(self._streams):  # those that end take themselves out
            stream.close()

    def open(self) -> None:
        self._shut = False

    def close(self) -> None:
        self._client.close()

    def get(self, path: str, **options: Any) -> Any:
        self._pass()
        return self._client.get(path, **options)

    def pages(self, *asked: Any, **options: Any) -> Iterator[Page]:
        self._pass()
        return self._client.pages(*asked, **options)

    def watch(self, *asked: Any, **options: Any) -> AbstractContextManager[WatchStream]:
        self._pass()
        return self._watch(*asked, **options)

    @contextmanager
    def _watch(self, *asked: Any, **options: Any) -> Iterator[WatchStream]:
        try:
            with self._client.watch(*asked, **options) as stream:
                self._streams.append(stream)
                if self._shut:  # in the meantime
                    stream.close()
                try:
                    yield stream
                finally:
                    self._streams.remove(stream)
        except ClusterError as refused:
            self.refusals.append(refused)
            raise

    def _pass(self) -> None:
        if self._shut:
            raise ClusterError(0, "Unreachable", "the way is shut", reached=False)
