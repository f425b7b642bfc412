"""Events on the objects that the warden touched: for whoever looks with kubectl why something happened to them.

A courtesy: an event that cannot be written costs nothing else. https://kubernetes.io/docs/reference/kubernetes-api/
cluster-resources/event-v1/ says what the fields may hold.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from actuators.kubernetes.access import Access
from serving.kubernetes.client import FIELD_MANAGER, path_of
from serving.kubernetes.cluster_error import ClusterError

API = "events.k8s.io/v1"
NOTE_MOST = 1000  # the server takes 1 kB
EVENT_S = 2.0
_DEFAULT = "default"  # where events about objects without a namespace lie


@dataclass(frozen=True, slots=True)
class Note:
    """What to tell about an object: the verb that was done to it, in words, and the operation's key."""

    about: Mapping[str, Any]
    verb: str
    says: str
    key: str
    kind: str = "Normal"


def event_name(key: str) -> str:
    """The name of an operation's event: the same for the same key, so that it is told once."""
    return f"{FIELD_MANAGER}.{hashlib.sha256(key.encode()).hexdigest()[:24]}"


def event_of(note: Note, now: float, annotations: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The event as the API takes it. `now` in Unix seconds."""
    about = note.about["metadata"]
    namespace = about.get("namespace") or _DEFAULT
    regarding = {
        "apiVersion": note.about.get("apiVersion", "v1"),
        "kind": note.about.get("kind", ""),
        "name": about["name"],
        "uid": about.get("uid", ""),
        "resourceVersion": about.get("resourceVersion", ""),
    }
    if about.get("namespace"):
        regarding["namespace"] = about["namespace"]
    return {
        "apiVersion": API,
        "kind": "Event",
        "metadata": {"name": event_name(note.key), "namespace": namespace, "annotations": dict(annotations or {})},
        "eventTime": datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "reportingController": f"{FIELD_MANAGER}.dev/warden",
        "reportingInstance": FIELD_MANAGER,
        "action": note.verb,
        "reason": "".join(word.capitalize() for word in note.verb.replace("_", ".").split(".")),
        "regarding": regarding,
        "note": f"{note.says} ({note.key})"[:NOTE_MOST],
        "type": note.kind,
    }


def tell(access: Access, note: Note) -> None:
    """Write the event, or do without."""
    event = event_of(note, access.client.server_now())
    path = path_of(API, "events", namespace=event["metadata"]["namespace"])
    try:
        access.client.create(path, event, deadline_s=EVENT_S)
    except ClusterError:
        return  # told before, no right to, or no time: what was done stands on the object
