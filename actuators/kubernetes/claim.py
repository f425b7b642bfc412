"""Which pod an operation is about, written down before the pod is touched: an event, named after the operation's key.

A pod that is deleted takes its annotations with it, so the record lies beside it. Its name makes it exclusive: an operation
has one pod for ever, and a second try under the same key never touches the pod's successor. Events are kept for an hour by
default (--event-ttl); look-ups come within minutes.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from actuators.action import Scalar
from actuators.kubernetes.access import Access
from actuators.kubernetes.events import API, Note, event_name, event_of
from actuators.kubernetes.ledger import LedgerUnreadableError, annotations_of
from serving.kubernetes.client import path_of
from serving.kubernetes.cluster_error import NOT_FOUND, ClusterError
from serving.kubernetes.cluster_map import PREFIX

CLAIM = f"{PREFIX}claim"


@dataclass(frozen=True, slots=True)
class Claim:
    """One pod for one operation. `before` is how the pod stood. `term`: of the writer."""

    key: str
    verb: str
    namespace: str
    pod: str
    uid: str
    term: int
    before: Mapping[str, Scalar]


def find(access: Access, key: str, namespace: str | None) -> Claim | None:
    """The claim of an operation, None without one. `namespace`: where its pod lies; None where that is not known any more.

    Raises ClusterError, LedgerUnreadableError.
    """
    name = event_name(key)
    for place in (namespace,) if namespace else (access.namespaces or ("",)):
        if place:
            try:
                event = access.client.get(path_of(API, "events", name, namespace=place), deadline_s=access.deadline_s)
            except ClusterError as missing:
                if missing.status != NOT_FOUND:
                    raise
                continue
            return _parsed(event, name)
        query = {"fieldSelector": f"metadata.name={name}"}
        found = access.client.list_all(path_of(API, "events"), query, deadline_s=access.deadline_s).items
        if found:
            return _parsed(found[0], name)
    return None


def make(access: Access, claim: Claim, pod: Mapping[str, Any], says: str) -> None:
    """Write the claim. Raises ClusterError; one with the reason AlreadyExists where the key has a claim."""
    note = Note({"kind": "Pod", "apiVersion": "v1", **pod}, claim.verb, says, claim.key)
    annotations = {CLAIM: orjson.dumps({**asdict(claim), "before": dict(claim.before)}).decode()}
    event = event_of(note, access.client.server_now(), annotations)
    access.client.create(path_of(API, "events", namespace=claim.namespace), event, deadline_s=access.deadline_s)


def _parsed(event: Mapping[str, Any], name: str) -> Claim:
    try:
        return Claim(**orjson.loads(annotations_of(event)[CLAIM]))
    except (orjson.JSONDecodeError, KeyError, TypeError) as wrong:
        raise LedgerUnreadableError(f"the event {name} says nothing of which pod it is about: {wrong}") from None
