"""The record as a Lease of Kubernetes (coordination.k8s.io/v1), the same object that other elected programs use.

`leaseTransitions` is the term, `holderIdentity` the holder, `renewTime` is for people only: clocks of different machines are
never compared. What a Lease has no field for, how often it was renewed, is an annotation. A write carries the
resourceVersion that was read, so that the API server refuses it when anything changed in between.
https://kubernetes.io/docs/concepts/architecture/leases/
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from agent.election.machine import Record, Saw
from agent.election.store import StoreSilentError
from serving.clock import Clock
from serving.kubernetes.client import ClusterClient, path_of
from serving.kubernetes.cluster_error import ClusterError

API = "coordination.k8s.io/v1"
RENEWALS = "fleetwarden.dev/renewals"
_NOT_FOUND, _CONFLICT = 404, 409


class LeaseStore:
    """One Lease. `client` is closed by whoever made it."""

    def __init__(self, client: ClusterClient, namespace: str, name: str, clock: Clock) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._clock = clock
        self._kept: Mapping[str, Any] = {}  # metadata as last read: labels and owners of others are not lost by a write

    @property
    def location(self) -> str:
        return f"Lease {self._namespace}/{self._name}"

    def read(self, seconds: float) -> Saw:
        try:
            found = self._client.get(self._path(self._name), deadline_s=seconds)
        except ClusterError as refused:
            if refused.status == _NOT_FOUND:
                return Saw(None, "")
            raise self._silent(refused, "get") from refused
        return Saw(self._record(found), self._noted(found))

    def write(self, record: Record, version: str | None, seconds: float) -> str | None:
        try:
            if version is None:
                return self._noted(self._client.create(self._path(), self._lease(record, {}), deadline_s=seconds))
            kept = {**self._kept, "resourceVersion": version}
            return self._noted(self._client.replace(self._path(self._name), self._lease(record, kept), deadline_s=seconds))
        except ClusterError as refused:
            if refused.status == _CONFLICT or (refused.status == _NOT_FOUND and version is not None):
                return None
            raise self._silent(refused, "create" if version is None else "update") from refused

    def close(self) -> None:
        """Nothing is held beside the client."""

    def _path(self, name: str = "") -> str:
        return path_of(API, "leases", name, namespace=self._namespace)

    def _noted(self, answer: Mapping[str, Any]) -> str:
        self._kept = answer["metadata"]
        return str(self._kept["resourceVersion"])

    def _lease(self, record: Record, metadata: Mapping[str, Any]) -> dict[str, Any]:
        annotations = {**(metadata.get("annotations") or {}), RENEWALS: str(record.renewals)}
        now = datetime.fromtimestamp(self._clock.now(), tz=UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec: dict[str, Any] = {
            "holderIdentity": record.holder,
            "leaseTransitions": record.term,
            "leaseDurationSeconds": record.lease,
            "renewTime": now,
        }
        named = {"name": self._name, "namespace": self._namespace, **metadata, "annotations": annotations}
        return {"apiVersion": API, "kind": "Lease", "metadata": named, "spec": spec}

    def _record(self, lease: Mapping[str, Any]) -> Record:
        """The record in a Lease, also in one that another program or a person wrote."""
        spec = lease.get("spec") or {}
        renewals = (lease["metadata"].get("annotations") or {}).get(RENEWALS, "")
        return Record(
            str(spec.get("holderIdentity") or ""),
            int(spec.get("leaseTransitions") or 0),
            int(renewals) if renewals.isdecimal() else 0,
            int(spec.get("leaseDurationSeconds") or 1),
        )

    def _silent(self, refused: ClusterError, verb: str) -> StoreSilentError:
        hint = ""
        if refused.status in {401, 403}:
            hint = f": allow `{verb}` on leases.coordination.k8s.io in namespace {self._namespace}"
        return StoreSilentError(f"{self.location} does not answer: {refused}{hint}")
