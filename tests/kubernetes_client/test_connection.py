"""Finding the server, and errors before any server is asked."""

from pathlib import Path

import pytest

from serving.clock import SystemClock
from serving.kubernetes.client import path_of
from serving.kubernetes.cluster_error import ClusterError, refusal
from serving.kubernetes.connection import connect

pytest.importorskip("kubernetes")
CONFIG = """\
apiVersion: v1
kind: Config
current-context: one
contexts: [{name: one, context: {cluster: here, user: me}}]
clusters: [{name: here, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: me, user: {token: secret}}]
"""


def test_a_missing_file_or_context_says_so(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="nowhere") as wrong:
        connect(tmp_path / "nowhere.yaml", clock=SystemClock())
    assert (wrong.value.reason, wrong.value.reached) == ("Configuration", False)
    written = tmp_path / "kubeconfig"
    written.write_text(CONFIG)
    with pytest.raises(ClusterError, match="two"):
        connect(written, "two", clock=SystemClock())


def test_nobody_listening_means_that_nothing_was_sent(tmp_path: Path) -> None:
    written = tmp_path / "kubeconfig"
    written.write_text(CONFIG)
    cluster = connect(written, clock=SystemClock(), deadline_s=2.0)
    with pytest.raises(ClusterError) as away:
        cluster.delete(path_of("v1", "nodes", "a"))
    assert (away.value.reason, away.value.reached, away.value.answered) == ("Unreachable", False, False)


def test_paths_are_those_of_the_api() -> None:
    assert path_of("v1", "nodes") == "/api/v1/nodes"
    assert path_of("apps/v1", "deployments", "llm", namespace="prod", sub="scale") == (
        "/apis/apps/v1/namespaces/prod/deployments/llm/scale"
    )
    assert path_of("v1", "pods", "a/../b", namespace="n") == "/api/v1/namespaces/n/pods/a%2F..%2Fb"


def test_a_refusal_holds_what_the_server_said() -> None:
    status = {"kind": "Status", "reason": "TooManyRequests", "message": "later", "details": {"retryAfterSeconds": 7}}
    assert refusal(429, status).retry_after == 7
    assert refusal(429, status, "3").retry_after == 3
    assert refusal(503, "no JSON at all", "Wed, 21 Oct 2026 07:28:00 GMT").retry_after is None
