"""What the kubelet asks of the API server, as plain JSON."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import requests
from requests.adapters import HTTPAdapter

from control_plane.access import Access

Json = dict[str, Any]
TIMEOUT_S = (2.0, 5.0)
WATCH_S = 2  # the server ends a watch after so long, and the next one goes on; so a reader is never blocked for longer
CONNECTIONS = 64
STRATEGIC = "application/strategic-merge-patch+json"


class ApiError(Exception):
    """The server answered with an error, or did not answer (`status` 0)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Api:
    """One user's connection to the API server; may be used by many threads. Never retries by itself."""

    def __init__(self, access: Access, user: str) -> None:
        self._url = access.url
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.verify = str(access.certificate)
        self._session.headers.update({"Authorization": f"Bearer {access.token(user)}", "User-Agent": "process-kubelet"})
        self._session.mount("https://", HTTPAdapter(pool_maxsize=CONNECTIONS))

    def close(self) -> None:
        """Close all connections."""
        self._session.close()

    def get(self, path: str, **query: str) -> Json:
        return self._ask("GET", path, params=query)

    def post(self, path: str, body: Mapping[str, Any]) -> Json:
        return self._ask("POST", path, json=body)

    def patch(self, path: str, body: Mapping[str, Any], kind: str = STRATEGIC) -> Json:
        return self._ask("PATCH", path, data=json.dumps(body), headers={"Content-Type": kind})

    def delete(self, path: str, body: Mapping[str, Any] | None = None) -> Json:
        return self._ask("DELETE", path, json=body)

    def watch(self, path: str, version: str, **query: str) -> Iterator[Json]:
        """Events after `version`, for a little while. Raises ApiError; 410 asks for a new list."""
        asked = {
            **query,
            "watch": "1",
            "allowWatchBookmarks": "1",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_S),
        }
        try:
            with self._session.get(self._url + path, params=asked, timeout=TIMEOUT_S, stream=True) as answer:
                if not answer.ok:
                    raise ApiError(answer.status_code, answer.text)
                for line in answer.iter_lines():
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise ApiError(event["object"].get("code", 500), event["object"].get("message", ""))
                    yield event
        except requests.RequestException as failed:
            raise ApiError(0, str(failed)) from failed

    def _ask(self, method: str, path: str, **more: Any) -> Json:
        try:
            answer = self._session.request(method, self._url + path, timeout=TIMEOUT_S, **more)
            content: Json = answer.json()
        except requests.RequestException as failed:
            raise ApiError(0, str(failed)) from failed
        if not answer.ok:
            raise ApiError(answer.status_code, content.get("message", answer.text))
        return content
