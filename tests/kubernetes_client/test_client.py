"""The client against a real API server: objects, lists, watches, refusals, and a server that is not there."""

import threading
from collections.abc import Iterator

import pytest
from control_plane.server import ControlPlane
from control_plane.waiting import until

from serving.clock import FakeClock, SystemClock
from serving.kubernetes.client import ClusterClient, PatchKind, path_of
from serving.kubernetes.cluster_error import ClusterError
from serving.kubernetes.connection import connect
from serving.kubernetes.watch_stream import WatchEvent

pytestmark = pytest.mark.real_kubernetes
CLOCK = SystemClock()


@pytest.fixture
def cluster(control_plane: ControlPlane) -> Iterator[ClusterClient]:
    made = connect(control_plane.kubeconfig(), clock=CLOCK, deadline_s=5.0)
    yield made
    made.close()


def maps(namespace: str, name: str = "") -> str:
    return path_of("v1", "configmaps", name, namespace=namespace)


def make(cluster: ClusterClient, namespace: str, name: str, **data: str) -> str:
    made = cluster.create(maps(namespace), {"metadata": {"name": name, "labels": {"of": "test"}}, "data": data})
    return str(made["metadata"]["resourceVersion"])


def test_an_object_is_made_changed_and_deleted(cluster: ClusterClient, namespace: str) -> None:
    make(cluster, namespace, "one", a="b")
    changed = cluster.patch(maps(namespace, "one"), {"data": {"c": "d"}})
    assert changed["data"] == {"a": "b", "c": "d"}
    assert {one["manager"] for one in changed["metadata"]["managedFields"]} == {"fleetwarden"}
    replaced = cluster.replace(maps(namespace, "one"), {**changed, "data": {"e": "f"}})
    assert replaced["data"] == {"e": "f"}
    cluster.delete(maps(namespace, "one"))
    with pytest.raises(ClusterError, match='configmaps "one" not found') as refused:
        cluster.get(maps(namespace, "one"))
    assert (refused.value.status, refused.value.reason, refused.value.hopeless) == (404, "NotFound", True)


def test_a_dry_run_is_checked_by_the_server_and_stores_nothing(cluster: ClusterClient, namespace: str) -> None:
    make(cluster, namespace, "one", a="b")
    foreseen = cluster.patch(maps(namespace, "one"), {"data": {"a": "z"}}, dry_run=True)
    cluster.delete(maps(namespace, "one"), dry_run=True)
    assert foreseen["data"] == {"a": "z"}
    assert cluster.get(maps(namespace, "one"))["data"] == {"a": "b"}
    with pytest.raises(ClusterError) as refused:
        cluster.create(maps(namespace), {"metadata": {"name": "Not A Name"}}, dry_run=True)
    assert refused.value.status == 422
    assert any("lowercase RFC 1123" in cause for cause in refused.value.causes)


def test_what_changed_meanwhile_is_a_conflict(cluster: ClusterClient, namespace: str) -> None:
    version = make(cluster, namespace, "one", a="b")
    cluster.patch(maps(namespace, "one"), {"data": {"a": "c"}})
    with pytest.raises(ClusterError) as refused:
        cluster.patch(maps(namespace, "one"), {"metadata": {"resourceVersion": version}, "data": {"a": "d"}})
    assert (refused.value.status, refused.value.reason) == (409, "Conflict")
    test = [{"op": "test", "path": "/data/a", "value": "b"}, {"op": "replace", "path": "/data/a", "value": "d"}]
    with pytest.raises(ClusterError) as refused:
        cluster.patch(maps(namespace, "one"), test, PatchKind.JSON)
    assert refused.value.status == 422
    assert cluster.get(maps(namespace, "one"))["data"] == {"a": "c"}


def test_a_list_is_read_page_by_page_and_metadata_alone_if_asked(cluster: ClusterClient, namespace: str) -> None:
    for number in range(5):
        make(cluster, namespace, f"m{number}", big="x" * 1000)
    pages = list(cluster.pages(maps(namespace), {"labelSelector": "of=test"}, limit=2))
    assert [len(page.items) for page in pages] == [2, 2, 1]
    assert len({page.version for page in pages}) == 1
    whole = cluster.list_all(maps(namespace), {"labelSelector": "of=test"}, metadata_only=True)
    assert [one["metadata"]["name"] for one in whole.items] == [f"m{number}" for number in range(5)]
    assert not any("data" in one for one in whole.items)


def test_a_watch_tells_every_change_and_can_be_closed_from_another_thread(cluster: ClusterClient, namespace: str) -> None:
    seen: list[WatchEvent] = []
    version = cluster.list_all(maps(namespace)).version
    with cluster.watch(maps(namespace), version, {"labelSelector": "of=test"}) as stream:
        reader = threading.Thread(target=lambda: seen.extend(stream), daemon=True)
        reader.start()
        make(cluster, namespace, "one")
        cluster.patch(maps(namespace, "one"), {"data": {"a": "b"}})
        cluster.delete(maps(namespace, "one"))
        until(lambda: len(seen) == 3, 10, lambda: f"all three changes are seen, not only {seen}")
        stream.close()
        reader.join(5)
    assert not reader.is_alive()
    assert [event.kind for event in seen] == ["ADDED", "MODIFIED", "DELETED"]


def test_a_watch_is_ended_by_the_server_when_its_time_is_over(cluster: ClusterClient, namespace: str) -> None:
    version = cluster.list_all(maps(namespace)).version
    with cluster.watch(maps(namespace), version, seconds=1) as stream:
        assert {event.kind for event in stream} <= {"BOOKMARK"}


def test_a_watch_from_a_version_that_never_was_is_told(cluster: ClusterClient, namespace: str) -> None:
    with pytest.raises(ClusterError), cluster.watch(maps(namespace), "no version") as stream:
        list(stream)


def test_missing_rights_are_named(control_plane: ControlPlane) -> None:
    user = control_plane.service_account("default", "nobody")
    cluster = connect(control_plane.kubeconfig(user), clock=CLOCK)
    with pytest.raises(ClusterError, match='cannot list resource "nodes"') as refused:
        cluster.list_all(path_of("v1", "nodes"))
    assert (refused.value.status, refused.value.forbidden) == (403, True)
    cluster.close()


def test_no_call_lasts_longer_than_its_deadline(control_plane: ControlPlane, cluster: ClusterClient) -> None:
    cluster.list_all(path_of("v1", "nodes"))
    control_plane.api_server.freeze()
    began = CLOCK.monotonic()
    try:
        for call in (
            lambda: cluster.get(path_of("v1", "nodes"), deadline_s=0.3),
            lambda: cluster.patch(path_of("v1", "nodes", "nowhere"), {}, deadline_s=0.3),
        ):
            with pytest.raises(ClusterError) as late:
                call()
            assert (late.value.status, late.value.reason, late.value.reached) == (0, "Timeout", True)
    finally:
        control_plane.api_server.thaw()
    assert CLOCK.monotonic() - began < 3
    assert cluster.list_all(path_of("v1", "nodes")).version


def test_a_server_that_was_restarted_is_read_on_the_first_try(control_plane: ControlPlane, cluster: ClusterClient) -> None:
    cluster.list_all(path_of("v1", "nodes"))
    control_plane.restart_api_server()
    assert cluster.list_all(path_of("v1", "nodes")).version


def test_a_server_that_is_away_got_nothing(control_plane: ControlPlane, cluster: ClusterClient) -> None:
    control_plane.api_server.kill()
    try:
        with pytest.raises(ClusterError) as away:
            cluster.patch(path_of("v1", "nodes", "nowhere"), {})
        assert (away.value.status, away.value.reached) == (0, False)
    finally:
        control_plane.restart_api_server()


def test_the_servers_clock_is_known_however_wrong_ours_is(control_plane: ControlPlane) -> None:
    clock = FakeClock(CLOCK.now() - 3600)
    cluster = connect(control_plane.kubeconfig(), clock=clock)
    assert cluster.skew() is None
    cluster.list_all(path_of("v1", "nodes"))
    assert cluster.server_now() == pytest.approx(CLOCK.now(), abs=2)
    assert cluster.skew() == pytest.approx(3600, abs=2)
    cluster.close()
