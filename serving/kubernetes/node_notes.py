"""Kubernetes events about nodes, cut down: what was said of whom and when. Kubelets, problem detectors and clouds say it."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from serving.kubernetes.decoding import LONGEST_TEXT, unix_seconds


@dataclass(frozen=True, slots=True)
class NodeNote:
    """One event; the same again only raises its `count` and `at` (Unix seconds)."""

    node: str
    reason: str
    message: str
    at: float
    count: int = 1
    warning: bool = False


def note_of(json: Mapping[str, Any]) -> NodeNote:
    """Read an event of the core API, in its older form or with the fields of events.k8s.io."""
    series = json.get("series") or {}
    times = (series.get("lastObservedTime"), json.get("lastTimestamp"), json.get("eventTime"), json.get("firstTimestamp"))
    return NodeNote(
        node=sys.intern((json.get("involvedObject") or {}).get("name", "")),
        reason=sys.intern(json.get("reason") or ""),
        message=(json.get("message") or "")[:LONGEST_TEXT],
        at=max(unix_seconds(time) for time in times),
        count=max(series.get("count") or 0, json.get("count") or 0, 1),
        warning=json.get("type") == "Warning",
    )
