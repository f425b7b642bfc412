"""A thin client of the API server: paths in, JSON out, and a deadline on every call.

Configuration (kubeconfig, or the service account of a pod), credentials that renew themselves, TLS and pooled connections
are those of the official `kubernetes` package; its models are not used, because they cost more than the calls. One client
may be used by many threads. Nothing is retried but a read on a connection that the server had closed meanwhile.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, urlencode

import orjson
import urllib3

from serving.clock import Clock
from serving.kubernetes.cluster_error import GONE, ClusterError
from serving.kubernetes.transport import CHUNK, decoded, mapped, refused
from serving.kubernetes.watch_stream import WatchStream

Json = dict[str, Any]
Query = Mapping[str, str]

FIELD_MANAGER = "fleetwarden"
DEADLINE_S = 10.0
PAGE = 500  # objects a page; what kubectl asks for
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
NOTHING: Mapping[str, Any] = MappingProxyType({})
_ERROR = 400


class PatchKind(StrEnum):
    """How a patch is written. `JSON` takes a list of operations, `APPLY` is server-side apply, the others take an object.

    https://kubernetes.io/docs/reference/using-api/api-concepts/#patch-and-apply
    """

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a list. `version` is the resourceVersion of the whole list, the same on each page."""

    items: tuple[Json, ...]
    version: str


def path_of(api: str, plural: str, name: str = "", *, namespace: str = "", sub: str = "") -> str:
    """The path of all objects of a kind, of one object, or of a subresource of it. `api` is `v1` or `group/version`."""
    parts = ["api" if "/" not in api else "apis", *api.split("/")]
    parts += ["namespaces", namespace] if namespace else []
    parts += [plural, *([name] if name else []), *([sub] if sub else [])]
    return "/" + "/".join(quote(part, safe="") for part in parts)


class ClusterClient:
    """Calls to one API server as one user. `connect` in serving.kubernetes.connection makes one.

    `credentials` gives the headers that say who we are, anew for each call. Every method raises ClusterError, nothing else.
    `deadline_s` bounds a call from its begin to the last byte (a server that sends drop by drop may take it twice).
    """

    def __init__(
        self,
        server: str,
        pool: urllib3.PoolManager,
        credentials: Callable[[], Mapping[str, str]],
        clock: Clock,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self.server = server.rstrip("/")
        self.deadline_s = deadline_s
        self._pool = pool
        self._credentials = credentials
        self._clock = clock
        self._ahead: float | None = None

    def close(self) -> None:
        """Close all connections that wait in the pool."""
        self._pool.clear()

    def server_now(self) -> float:
        """Unix seconds by the API server's clock, as its last answer dated itself (to the second); ours before the first.

        What objects say of times was written by that clock, or by others that are held to it: ages are judged by it.
        """
        return self._clock.now() + (self._ahead or 0.0)

    def skew(self) -> float | None:
        """Seconds by which the API server's clock is ahead of ours (negative: behind); None before any answer."""
        return self._ahead

    def get(
        self, path: str, query: Query = NOTHING, *, metadata_only: bool = False, deadline_s: float | None = None
    ) -> Json:
        """Read one object, or one page of a list."""
        accept = METADATA if metadata_only else "application/json"
        return self._ask("GET", path, query, accept=accept, deadline_s=deadline_s)

    def pages(
        self,
        path: str,
        query: Query = NOTHING,
        *,
        limit: int = PAGE,
        metadata_only: bool = False,
        deadline_s: float | None = None,
    ) -> Iterator[Page]:
        """Read a list page by page, each with a deadline of its own. A list that the server forgot in between is a 410."""
        accept = METADATA_LIST if metadata_only else "application/json"
        asked = {**query, "limit": str(limit)}
        while True:
            answer = self._ask("GET", path, asked, accept=accept, deadline_s=deadline_s)
            told = answer.get("metadata") or {}
            yield Page(tuple(answer.get("items") or ()), str(told.get("resourceVersion", "")))
            if not told.get("continue"):
                return
            asked = {**query, "limit": str(limit), "continue": told["continue"]}

    def list_all(
        self, path: str, query: Query = NOTHING, *, metadata_only: bool = False, deadline_s: float | None = None
    ) -> Page:
        """Read a whole list; begun anew once when the server forgot it between two pages."""
        for attempt in (1, 2):
            items: list[Json] = []
            version = ""
            try:
                for page in self.pages(path, query, metadata_only=metadata_only, deadline_s=deadline_s):
                    items.extend(page.items)
                    version = page.version
            except ClusterError as refused:
                if refused.status != GONE or attempt == 2:  # noqa: PLR2004 - the second of two
                    raise
            else:
                break
        return Page(tuple(items), version)

    def create(self, path: str, body: Mapping[str, Any], *, dry_run: bool = False, deadline_s: float | None = None) -> Json:
        """POST: make an object, or ask for what a subresource does (an eviction)."""
        return self._ask("POST", path, _write_query(dry_run=dry_run), body=body, deadline_s=deadline_s)

    def replace(self, path: str, body: Mapping[str, Any], *, dry_run: bool = False, deadline_s: float | None = None) -> Json:
        """PUT: the whole object; refused with 409 where its resourceVersion is not the newest."""
        return self._ask("PUT", path, _write_query(dry_run=dry_run), body=body, deadline_s=deadline_s)

    def patch(
        self,
        path: str,
        body: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        kind: PatchKind = PatchKind.MERGE,
        *,
        dry_run: bool = False,
        force: bool = False,
        deadline_s: float | None = None,
    ) -> Json:
        """Change parts of an object. `force`: with APPLY, take over fields that others manage."""
        query = _write_query(dry_run=dry_run) | ({"force": "true"} if force else {})
        return self._ask("PATCH", path, query, body=body, content=kind.value, deadline_s=deadline_s)

    def delete(
        self, path: str, options: Mapping[str, Any] = NOTHING, *, dry_run: bool = False, deadline_s: float | None = None
    ) -> Json:
        """Delete an object. `options` are fields of DeleteOptions, such as preconditions or gracePeriodSeconds."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", **options} | ({"dryRun": ["All"]} if dry_run else {})
        return self._ask("DELETE", path, {}, body=body, deadline_s=deadline_s)

    @contextmanager
    def watch(
        self,
        path: str,
        version: str,
        query: Query = NOTHING,
        *,
        seconds: int = 300,
        idle_s: float | None = None,
        metadata_only: bool = False,
    ) -> Iterator[WatchStream]:
        """Watch for `seconds` from `version` on. `idle_s`: give up when nothing comes for so long; `seconds` + 10 s if None.

        A version that the server has forgotten is a ClusterError with status 410, here or while reading: list anew.
        """
        asked = {
            **query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(seconds),
        }
        wait = seconds + 10.0 if idle_s is None else idle_s
        timeout = urllib3.Timeout(connect=min(self.deadline_s, wait), read=wait)
        accept = METADATA if metadata_only else "application/json"
        response = self._send("GET", path, asked, None, "", accept, timeout)
        try:
            if response.status >= _ERROR:
                end = self._clock.monotonic() + self.deadline_s
                raise refused(response, self._body(response, end, "GET", path))
            yield WatchStream(response, path)
        finally:
            response.close()  # the stream may be in the middle of an event; this connection is of no further use

    def _ask(
        self,
        method: str,
        path: str,
        query: Query,
        *,
        body: object = None,
        content: str = "application/json",
        accept: str = "application/json",
        deadline_s: float | None = None,
    ) -> Json:
        allowed = self.deadline_s if deadline_s is None else deadline_s
        end = self._clock.monotonic() + allowed
        sent = None if body is None else orjson.dumps(body)
        for attempt in (1, 2):
            left = max(0.05, end - self._clock.monotonic())
            try:
                response = self._send(method, path, query, sent, content, accept, urllib3.Timeout(total=left))
                raw = self._body(response, end, method, path)
            except ClusterError as failed:
                if method == "GET" and failed.reason == "Broken" and attempt == 1:
                    continue  # the server may have closed a waiting connection just now; a read may be asked twice
                raise
            break
        if response.status >= _ERROR:
            raise refused(response, raw)
        answer = decoded(raw)
        if not isinstance(answer, dict):
            raise ClusterError(0, "Broken", f"{method} {path}: the answer is not an object of the API: {raw[:200]!r}")
        return answer

    def _send(
        self,
        method: str,
        path: str,
        query: Query,
        body: bytes | None,
        content: str,
        accept: str,
        timeout: urllib3.Timeout,
    ) -> urllib3.BaseHTTPResponse:
        headers = {"Accept": accept, "User-Agent": FIELD_MANAGER, **self._credentials()}
        if body is not None:
            headers["Content-Type"] = content
        url = f"{self.server}{path}" + (f"?{urlencode(query)}" if query else "")
        with mapped(f"{method} {path}"):
            response = self._pool.request(
                *(method, url),
                body=body,
                headers=headers,
                timeout=timeout,
                retries=False,
                redirect=False,
                preload_content=False,
            )
        self._note_date(response.headers.get("Date"))
        return response

    def _body(self, response: urllib3.BaseHTTPResponse, end: float, method: str, path: str) -> bytes:
        parts: list[bytes] = []
        try:
            with mapped(f"{method} {path}", sent=True):
                while part := response.read1(CHUNK):
                    parts.append(part)
                    self._must_end(end, f"{method} {path}")
        except ClusterError:
            response.close()  # the rest of the answer would be taken for the next one's
            raise
        response.release_conn()
        return b"".join(parts)

    def _must_end(self, end: float, what: str) -> None:
        if self._clock.monotonic() > end:
            raise ClusterError(0, "Timeout", f"{what}: the answer did not end in time")

    def _note_date(self, date: str | None) -> None:
        try:
            theirs = parsedate_to_datetime(date).timestamp() if date else None
        except ValueError:
            return
        if theirs is not None:
            ours = self._clock.now()
            # The header is cut to whole seconds: within that second the clocks agree.
            self._ahead = 0.0 if theirs <= ours < theirs + 1 else theirs + 0.5 - ours


def _write_query(*, dry_run: bool) -> dict[str, str]:
    return {"fieldManager": FIELD_MANAGER} | ({"dryRun": "All"} if dry_run else {})
