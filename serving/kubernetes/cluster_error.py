"""What can go wrong between us and an API server, in one exception."""

from collections.abc import Mapping
from typing import Any

CONFLICT, NOT_FOUND, GONE, FORBIDDEN, UNAUTHORIZED, INVALID = 409, 404, 410, 403, 401, 422
TOO_MANY = 429
ALREADY_EXISTS = "AlreadyExists"


class ClusterError(Exception):
    """A request to the API server that did not succeed.

    `status` is that of HTTP, 0 when no answer was understood. `reason` is the API's own word for it, as in Conflict or
    AlreadyExists, or ours where nothing was answered: Unreachable, Timeout, Broken, Configuration. `retry_after`: seconds,
    where the server asks for patience. `causes`: what the server names in detail. `reached`: whether the request may have
    been carried out although no answer came; always true with an answer.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        says: str,
        *,
        retry_after: float | None = None,
        causes: tuple[str, ...] = (),
        reached: bool = True,
    ) -> None:
        super().__init__(says)
        self.status = status
        self.reason = reason
        self.says = says
        self.retry_after = retry_after
        self.causes = causes
        self.reached = reached

    @property
    def answered(self) -> bool:
        """Whether the server itself said no."""
        return self.status != 0

    @property
    def hopeless(self) -> bool:
        """Whether asking again cannot help: no such thing, no right, not understood."""
        return self.status in {400, 404, 405, INVALID} or self.forbidden

    @property
    def forbidden(self) -> bool:
        """Whether rights are missing."""
        return self.status in {UNAUTHORIZED, FORBIDDEN}


def refusal(status: int, content: object, retry_after: str | None = None) -> ClusterError:
    """The error for an answer with a status of 400 or more. `content` is a Status of the API, or whatever else came.

    https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/
    """
    fields: Mapping[str, Any] = content if isinstance(content, Mapping) else {}
    details = fields.get("details") or {}
    patience = _seconds(retry_after)
    if patience is None and details.get("retryAfterSeconds"):
        patience = float(details["retryAfterSeconds"])
    causes = tuple(str(cause.get("message", "")) for cause in details.get("causes") or () if cause.get("message"))
    says = str(fields.get("message") or content or "no words")[:1000]
    return ClusterError(status, str(fields.get("reason") or ""), says, retry_after=patience, causes=causes)


def _seconds(header: str | None) -> float | None:
    try:
        return float(header) if header is not None else None
    except ValueError:  # a date; the API server sends seconds
        return None
