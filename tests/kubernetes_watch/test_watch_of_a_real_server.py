"""What the cache knows is what the real API server has, whatever happens in between."""

import pytest
from control_plane.waiting import until
from sight import Sight

from serving.kubernetes import pulse

pytestmark = pytest.mark.real_kubernetes
SOON_S = 20.0


def knows(sight: Sight, *names: str) -> None:
    until(lambda: set(sight.pods()) == set(names), SOON_S, lambda: f"{names} are known: {set(sight.pods())}")


def test_pods_come_and_go_and_strangers_are_not_seen(sight: Sight) -> None:
    knows(sight, "first")
    sight.made.pod("second")
    sight.made.pod("stranger", app="other")
    knows(sight, "first", "second")
    assert sight.pods()["second"].launch.model == "llama"
    sight.made.delete("first")
    knows(sight, "second")
    assert not sight.cache.doubts()


def test_a_pod_deleted_in_a_short_gap_is_told_by_the_watch_without_a_new_list(sight: Sight) -> None:
    lists = sight.cache.lists
    sight.client.shut()
    sight.made.delete("first")
    sight.made.pod("second")
    assert set(sight.pods()) == {"first"}, "behind the gate nothing is seen"
    sight.client.open()
    knows(sight, "second")
    assert sight.cache.lists == lists


def test_a_pod_deleted_in_a_gap_that_the_server_forgot_is_found_by_a_new_list(sight: Sight) -> None:
    lists = sight.cache.lists
    sight.client.shut()
    sight.made.delete("first")
    sight.made.pod("second")
    sight.made.forget_the_past()
    sight.client.open()
    knows(sight, "second")
    assert any(refused.status == 410 for refused in sight.client.refusals), sight.client.refusals
    assert sight.cache.lists > lists
    until(lambda: not sight.cache.doubts(), SOON_S, lambda: f"no doubt is left: {dict(sight.cache.doubts())}")


def test_a_killed_server_is_followed_again_once_it_is_back(sight: Sight) -> None:
    sight.made.plane.api_server.stop(0)
    until(lambda: sight.cache.staleness()["pods"] > 0, SOON_S, "the loss is noticed")
    assert set(sight.pods()) == {"first"}, "what was known is kept"
    sight.made.plane.restart_api_server()
    sight.made.pod("second")
    knows(sight, "first", "second")
    until(lambda: not sight.cache.doubts(), SOON_S, lambda: f"no doubt is left: {dict(sight.cache.doubts())}")


def test_a_server_that_falls_silent_is_doubted_and_believed_again(sight: Sight, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("EVERY_S", 0.2), ("DEADLINE_S", 0.5), ("TRUSTED_S", 2.0)):
        monkeypatch.setattr(pulse, name, seconds)
    server = sight.made.plane.api_server
    server.freeze()
    try:
        until(lambda: "API server" in sight.cache.doubts(), SOON_S, "the silence is noticed")
    finally:
        server.thaw()
    sight.made.pod("second")
    knows(sight, "first", "second")
    until(lambda: not sight.cache.doubts(), SOON_S, lambda: f"no doubt is left: {dict(sight.cache.doubts())}")
