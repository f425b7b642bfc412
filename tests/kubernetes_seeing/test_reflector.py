"""A reflector's store is what the server has, through ends, breaks, gaps and forgotten versions."""

from random import Random
from typing import Any

import pytest
from scripted_server import ScriptedServer, bookmark, broken, event, gone, thing

from serving.clock import FakeClock
from serving.kubernetes.client import Page
from serving.kubernetes.reflector import ABSENT_S, REFUSALS_UNTIL_LISTED, Reflector
from serving.kubernetes.watched import QUIET_S, TRUSTED_S, Kind, Watched


class Bench:
    """A reflector over a scripted server; objects are decoded to their `state`."""

    def __init__(self, server: ScriptedServer, *, optional: bool = False) -> None:
        self.server = server
        self.clock = FakeClock()
        kind: Kind[Any] = Kind("things", "/api/v1/things", lambda json: json.get("state", ""), optional=optional)
        self.watched = Watched(kind, self.clock)
        self.reflector = Reflector(server, self.watched, Random(1))

    def advance(self, rounds: int = 1) -> float:
        waits = [self.reflector.advance() for _ in range(rounds)]
        return waits[-1]


def page(*things: Any, version: int = 10) -> Page:
    return Page(things, str(version))


def test_pages_make_one_list_and_the_watch_goes_on_from_it() -> None:
    bench = Bench(ScriptedServer([[page(thing("a", 3, state="new")), page(thing("b", 4))]], [[event("MODIFIED", "a", 11)]]))
    bench.advance()
    assert bench.server.asked == ["list", "watch 10"]
    assert bench.watched.snapshot() == {"a": "", "b": ""}


def test_additions_changes_and_deletions_are_followed() -> None:
    said = [event("ADDED", "b", 11, state="1"), event("MODIFIED", "b", 12, state="2"), event("DELETED", "a", 13)]
    bench = Bench(ScriptedServer([[page(thing("a", 3))]], [said]))
    bench.advance()
    assert bench.watched.snapshot() == {"b": "2"}


def test_a_watch_that_ends_or_breaks_goes_on_where_it_was_and_nothing_is_listed_again() -> None:
    server = ScriptedServer(
        [[page()]], [[event("ADDED", "a", 11)], [bookmark(20)], broken(), [event("ADDED", "b", 21), broken()], []]
    )
    bench = Bench(server)
    bench.advance(5)
    assert server.asked == ["list", "watch 10", "watch 11", "watch 20", "watch 20", "watch 21"]
    assert bench.watched.snapshot() == {"a": "", "b": ""}


@pytest.mark.parametrize("when", ["at its begin", "while it runs"])
def test_a_forgotten_version_lists_anew_and_finds_what_was_deleted_in_the_gap(when: str) -> None:
    refused = gone() if when == "at its begin" else [gone()]
    server = ScriptedServer([[page(thing("a", 3), thing("b", 4))], [page(thing("b", 4), version=50)]], [[], refused, []])
    bench = Bench(server)
    bench.advance(3)
    assert server.asked == ["list", "watch 10", "watch 10", "list", "watch 50"]
    assert bench.watched.snapshot() == {"b": ""}


def test_a_list_that_is_forgotten_between_two_pages_changes_nothing_and_is_asked_for_again() -> None:
    whole = [page(thing("a", 3)), page(thing("b", 4))]
    server = ScriptedServer([whole, [page(thing("a", 3)), Page((), "")], whole], [[gone()], []])
    bench = Bench(server)
    bench.advance(2)
    assert bench.watched.snapshot() == {"a": "", "b": ""}, "half a list is no list"
    bench.advance()
    assert server.asked == ["list", "watch 10", "list", "list", "watch 10"]


def test_waits_grow_with_failures_and_are_drawn_and_the_server_may_ask_for_more() -> None:
    bench = Bench(ScriptedServer([broken("Unreachable")] * 4 + [broken("TooManyRequests", 429, retry_after=60.0)]))
    waits = [bench.advance() for _ in range(4)]
    assert [0.25 * 2**step <= wait <= 0.5 * 2**step for step, wait in enumerate(waits)] == [True] * 4
    assert bench.advance() == 60.0


def test_versions_that_are_refused_again_and_again_are_given_up() -> None:
    server = ScriptedServer([[page()], [page(version=5)]], [*[broken("Timeout", 504)] * REFUSALS_UNTIL_LISTED, []])
    bench = Bench(server)
    bench.advance(REFUSALS_UNTIL_LISTED + 1)
    assert server.asked[-2:] == ["list", "watch 5"]


def test_a_server_that_is_away_for_long_is_not_asked_for_a_list_when_it_is_back() -> None:
    server = ScriptedServer([[page()]], [*[broken("Unreachable")] * 3 * REFUSALS_UNTIL_LISTED, []])
    Bench(server).advance(3 * REFUSALS_UNTIL_LISTED + 1)
    assert server.asked.count("list") == 1


@pytest.mark.parametrize("refusal", [broken("NotFound", 404), broken("Forbidden", 403)])
def test_a_kind_that_the_cluster_lacks_or_hides_has_no_objects_and_no_doubt(refusal: Any) -> None:
    bench = Bench(ScriptedServer([refusal]), optional=True)
    assert bench.advance() == ABSENT_S
    assert bench.watched.snapshot() == {}
    assert bench.watched.doubt() == ""


def test_a_kind_that_must_be_there_and_is_hidden_is_in_doubt_with_the_reason() -> None:
    bench = Bench(ScriptedServer([broken("Forbidden", 403)]))
    bench.advance()
    assert bench.watched.doubt() == "the things have not been read yet: it is forbidden"


def test_an_object_that_cannot_be_read_does_not_end_the_sight_of_its_kind() -> None:
    odd = thing("a", 3)
    odd["metadata"] = "odd"
    server = ScriptedServer([[page(odd)], [page(thing("b", 4))]], [[]])
    bench = Bench(server)
    bench.advance(2)
    assert bench.watched.snapshot() == {"b": ""}


def test_what_is_known_can_be_trusted_while_the_watch_stands_and_for_a_moment_after() -> None:
    bench = Bench(ScriptedServer([[page()]], [[bookmark(11)], broken("Unreachable"), [bookmark(12)]]))
    bench.advance()
    bench.clock.advance(QUIET_S)
    assert bench.watched.doubt() == "", "a quiet watch says something once a minute only"
    bench.advance()
    bench.clock.advance(TRUSTED_S + 1)
    assert "it is unreachable" in bench.watched.doubt()
    bench.advance()
    assert bench.watched.doubt() == ""


def test_a_watch_that_falls_silent_is_doubted() -> None:
    bench = Bench(ScriptedServer([[page()]], [[]]))
    bench.advance()
    bench.clock.advance(QUIET_S + TRUSTED_S + 1)
    assert "says nothing any more" in bench.watched.doubt()


def test_only_what_is_kept_of_an_object_counts_as_a_change() -> None:
    said = [event("MODIFIED", "a", 11, heartbeat=1), event("MODIFIED", "a", 12, heartbeat=2)]
    bench = Bench(ScriptedServer([[page(thing("a", 3))]], [said]))
    bench.advance()
    assert bench.watched.changes == 1
