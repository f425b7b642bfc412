"""An API server that answers by a script: pages of lists, and watches that say so much and then end or break."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from serving.kubernetes.client import Page
from serving.kubernetes.cluster_error import ClusterError
from serving.kubernetes.watch_stream import WatchEvent

Json = dict[str, Any]


def thing(uid: str, version: int, **more: Any) -> Json:
    return {"metadata": {"uid": uid, "name": uid, "resourceVersion": str(version)}, **more}


def event(kind: str, uid: str, version: int, **more: Any) -> WatchEvent:
    return WatchEvent(kind, thing(uid, version, **more))


def bookmark(version: int) -> WatchEvent:
    return WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})


def broken(reason: str = "Broken", status: int = 0, retry_after: float | None = None) -> ClusterError:
    return ClusterError(status, reason, f"it is {reason.lower()}", retry_after=retry_after)


def gone() -> ClusterError:
    return broken("Expired", 410)


@dataclass
class Stream:
    said: list[WatchEvent | ClusterError]
    closed: bool = False

    def __iter__(self) -> Iterator[WatchEvent]:
        for one in self.said:
            if self.closed:
                return
            if isinstance(one, ClusterError):
                raise one
            yield one

    def close(self) -> None:
        self.closed = True


@dataclass
class ScriptedServer:
    """`lists` and `watches` are used up in order; an error stands for a refusal. `asked` is what was asked for."""

    lists: list[list[Page] | ClusterError] = field(default_factory=list)
    watches: list[list[WatchEvent | ClusterError] | ClusterError] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def pages(self, *_: object, **_options: object) -> Iterator[Page]:
        self.asked.append("list")
        answer = self.lists.pop(0)
        if isinstance(answer, ClusterError):
            raise answer
        for page in answer:
            if not page.version:
                raise gone()
            yield page

    @contextmanager
    def watch(self, _path: str, version: str, *_: object, **_options: object) -> Iterator[Stream]:
        self.asked.append(f"watch {version}")
        answer = self.watches.pop(0)
        if isinstance(answer, ClusterError):
            raise answer
        yield Stream(answer)
