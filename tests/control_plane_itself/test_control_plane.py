"""The control plane itself: it is the real one, with real rights, and it can be disturbed."""

import pytest
from control_plane.server import ControlPlane
from control_plane.waiting import until
from kubernetes import client

pytestmark = pytest.mark.real_kubernetes


def test_users_have_the_rights_that_were_given_and_no_more(control_plane: ControlPlane) -> None:
    user = control_plane.service_account("default", "reader")
    with pytest.raises(client.ApiException, match="cannot list resource") as refused:
        client.CoreV1Api(control_plane.api_client(user)).list_node()
    assert refused.value.status == 403
    assert user in str(refused.value.body)


def test_controllers_have_the_rights_to_do_their_work(control_plane: ControlPlane) -> None:
    apps, core = client.AppsV1Api(control_plane.api_client()), client.CoreV1Api(control_plane.api_client())
    container = {"name": "one", "image": "any"}
    labels = {"app": "of-controllers"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    apps.create_namespaced_deployment(
        "default",
        {"metadata": {"name": "two"}, "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}},
    )
    try:
        until(
            lambda: len(core.list_namespaced_pod("default", label_selector="app=of-controllers").items) == 2, 20, "two pods"
        )
    finally:
        apps.delete_namespaced_deployment("two", "default")


def test_the_audit_log_tells_who_wrote_what(control_plane: ControlPlane) -> None:
    user = control_plane.service_account("default", "writer")
    core = client.CoreV1Api(control_plane.api_client(user))
    with pytest.raises(client.ApiException):
        core.patch_node("nowhere", {"spec": {"unschedulable": True}}, dry_run="All")
    (event,) = [event for event in control_plane.audit() if event.user == user]
    assert (event.verb, event.resource, event.name, event.code, event.dry_run) == ("patch", "nodes", "nowhere", 403, True)


def test_a_frozen_api_server_answers_again_once_thawed(control_plane: ControlPlane) -> None:
    core = client.CoreV1Api(control_plane.api_client())
    control_plane.api_server.freeze()
    try:
        with pytest.raises(Exception, match="timed out"):
            core.list_namespace(_request_timeout=0.5)
    finally:
        control_plane.api_server.thaw()
    assert core.list_namespace().items


def test_a_restarted_api_server_still_knows_everything(control_plane: ControlPlane) -> None:
    core = client.CoreV1Api(control_plane.api_client())
    core.create_namespaced_config_map("default", {"metadata": {"name": "kept"}, "data": {"a": "b"}})
    control_plane.restart_api_server()
    assert core.read_namespaced_config_map("kept", "default").data == {"a": "b"}
