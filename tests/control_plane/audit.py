"""The API server's audit log: what was asked of it, by whom, and what it answered."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

# Reads are kept without bodies, writes with what was asked. The servers' own reads are left out, and what kubelets renew all
# the time. https://kubernetes.io/docs/tasks/debug/debug-cluster/audit/
POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {level: None, nonResourceURLs: ["*"]}
  - level: None
    users: ["system:apiserver", "system:kube-controller-manager", "system:kube-scheduler", "process-kubelet"]
    verbs: [get, list, watch]
  - level: None
    userGroups: ["system:serviceaccounts:kube-system"]
    verbs: [get, list, watch]
  - level: None
    users: ["process-kubelet"]
    resources:
      - {group: "", resources: [events, nodes/status]}
      - {group: coordination.k8s.io}
  - level: Metadata
    resources: [{group: "", resources: [secrets, serviceaccounts/token]}]
  - level: Metadata
    verbs: [get, list, watch]
  - level: Request
"""


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """One request that was answered. `at` is Unix seconds of its arrival; `body` is what was sent with a write.

    `stage` is ResponseComplete, or ResponseStarted for a watch that is still open. `dry_run`: nothing was stored.
    """

    at: float
    stage: str
    user: str
    agent: str
    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    code: int
    dry_run: bool
    body: Mapping[str, Any] | list[Any] | None


def read(path: Path) -> list[AuditEvent]:
    """All events, in the order of the answers. A last line that is still being written is left out."""
    whole = path.read_text().rpartition("\n")[0] if path.exists() else ""
    return [_event(json.loads(line)) for line in whole.splitlines()]


def _event(raw: Mapping[str, Any]) -> AuditEvent:
    target = raw.get("objectRef", {})
    return AuditEvent(
        at=datetime.fromisoformat(raw["requestReceivedTimestamp"]).timestamp(),
        stage=raw["stage"],
        user=raw.get("user", {}).get("username", ""),
        agent=raw.get("userAgent", ""),
        verb=raw["verb"],
        resource=target.get("resource", ""),
        subresource=target.get("subresource", ""),
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        code=raw.get("responseStatus", {}).get("code", 0),
        dry_run="dryRun=" in raw.get("requestURI", ""),
        body=raw.get("requestObject"),
    )
