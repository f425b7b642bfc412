"""Orders to the door and requests to engines when the target is dead, slow, talks nonsense, or is not what was thought."""

import socket
from collections.abc import Iterator

import pytest
from in_background import in_background
from live_targets import FakeDoor, FakeEngine, answering_raw, serving

from actuators.action import Action, Actuator, Outcome, OutcomeStatus
from actuators.binding import verbs_of
from actuators.door import DoorActuator
from actuators.engine_http import EngineHttpActuator
from serving.fleet.entity import Entity
from serving.fleet.topology import EngineFacts
from serving.gateway.orders import Orders, Standing

SIM = Entity.engine("sim-0")
SHORT_S = 0.15
DRAIN, UNDRAIN = Action("door.drain", SIM), Action("door.undrain", SIM)
WEIGHT = Action("door.set_weight", SIM, {"weight": 0.5})
CANARY = Action("engine.canary", SIM, {"deadline_s": SHORT_S})
PAUSE, RESUME = Action("engine.pause", SIM), Action("engine.resume", SIM)
DOOR_VERBS, ENGINE_VERBS = [DRAIN, UNDRAIN, WEIGHT], [CANARY, PAUSE, RESUME]


def over(url: str) -> tuple[Actuator, Actuator]:
    return DoorActuator(url, timeout_s=SHORT_S), EngineHttpActuator(lambda name: EngineFacts(name, url, "m"), SHORT_S)


def all_outcomes(url: str) -> Iterator[tuple[str, Outcome]]:
    for actuator, actions in zip(over(url), (DOOR_VERBS, ENGINE_VERBS), strict=True):
        for action in actions:
            yield "rehearse", actuator.rehearse(action)
            yield "apply", actuator.apply(action, "k")
            yield "look_up", actuator.look_up(action, "k")


@pytest.fixture
def dead_url() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


def test_a_dead_target_fails_because_nothing_was_ever_sent(dead_url: str) -> None:
    for method, outcome in all_outcomes(dead_url):
        assert outcome.detail
        assert not outcome.permanent
        if method != "look_up":
            assert outcome.status is OutcomeStatus.FAILED


NONSENSE = {
    "not HTTP": b"SSH-2.0-OpenSSH_9.2\r\n",
    "nothing": b"",
    "half an answer": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[{",
    "HTML": b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>",
    "a number": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n7",
    "rows of another kind": b'HTTP/1.1 200 OK\r\nContent-Length: 34\r\n\r\n[1, null, {"name": "sim-0", "x":1}]',
    "a record of another kind": b'HTTP/1.1 200 OK\r\nContent-Length: 35\r\n\r\n{"key":"k","before":{},"after":null}',
    "bytes that are no text": b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n\xff\xfe\x00\x80",
    "an error without words": b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n",
    "a redirect": b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
    "not found by somebody else": b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nnginx",
}


@pytest.mark.parametrize("answer", NONSENSE.values(), ids=NONSENSE)
def test_nonsense_is_never_taken_for_done(answer: bytes) -> None:
    with in_background(answering_raw(answer)) as url:
        for _, outcome in all_outcomes(url):
            assert outcome.status is not OutcomeStatus.DONE
            assert outcome.detail


def test_a_target_that_accepts_and_never_answers_is_given_up(dead_url: str) -> None:
    with socket.create_server(("127.0.0.1", int(dead_url.rpartition(":")[2]))):
        for method, outcome in all_outcomes(dead_url):
            assert outcome.status is not OutcomeStatus.DONE
            if method == "apply":  # only reads were tried, so nothing can have changed
                assert outcome.status is OutcomeStatus.FAILED


@pytest.mark.parametrize("url", ["", "not a url", "ftp://127.0.0.1", "http://[::1", "http://127.0.0.1:99999"])
def test_an_impossible_url_is_an_outcome_too(url: str) -> None:
    for _, outcome in all_outcomes(url):
        assert outcome.status is not OutcomeStatus.DONE


@pytest.mark.parametrize(("lost", "truth"), [("lose_answers", OutcomeStatus.DONE), ("lose_requests", OutcomeStatus.FAILED)])
def test_an_order_without_an_answer_is_unknown_until_it_is_looked_up(lost: str, truth: OutcomeStatus) -> None:
    door = FakeDoor()
    setattr(door, lost, True)
    with in_background(serving(door.handle)) as url:
        actuator = DoorActuator(url, timeout_s=SHORT_S)
        assert actuator.apply(DRAIN, "k").status is OutcomeStatus.UNKNOWN
        assert actuator.look_up(DRAIN, "k").status is truth
        door.hang_reads = True
        assert actuator.look_up(DRAIN, "k").status is OutcomeStatus.UNKNOWN


def test_a_persons_drain_is_respected_and_nothing_is_sent() -> None:
    door = FakeDoor(Orders({"sim-0": Standing(drained_by="ana")}))
    with in_background(serving(door.handle)) as url:
        outcome = DoorActuator(url).apply(UNDRAIN, "k")
        assert (outcome.status, outcome.permanent) == (OutcomeStatus.FAILED, True)
        assert "'ana'" in outcome.detail
        assert door.puts == 0
        drained = DoorActuator(url).apply(DRAIN, "k2")
        assert drained.status is OutcomeStatus.DONE
        assert drained.after["drained_by"] == "ana"


def test_a_key_used_for_another_order_is_refused_for_good() -> None:
    with in_background(serving(FakeDoor().handle)) as url:
        actuator = DoorActuator(url)
        actuator.apply(DRAIN, "k")
        outcome = actuator.apply(WEIGHT, "k")
        assert (outcome.status, outcome.permanent) == (OutcomeStatus.FAILED, True)
        assert "already used" in outcome.detail


def test_an_undrain_done_under_its_key_stays_done_after_a_person_drains() -> None:
    door = FakeDoor()
    with in_background(serving(door.handle)) as url:
        actuator = DoorActuator(url)
        actuator.apply(UNDRAIN, "k")
        door.orders = Orders({"sim-0": Standing(drained_by="ana")}, door.orders.operations)
        assert actuator.apply(UNDRAIN, "k").status is OutcomeStatus.DONE


def test_a_canary_is_one_token_straight_to_the_engine() -> None:
    engine = FakeEngine()
    with in_background(serving(engine.handle)) as url:
        outcome = over(url)[1].apply(CANARY, "k")
        assert outcome.status is OutcomeStatus.DONE
        assert outcome.after["status"] == 200
        assert " ms" in outcome.detail
        assert (engine.completions[0]["max_tokens"], engine.completions[0]["model"]) == (1, "m")


@pytest.mark.parametrize(
    ("manner", "says"), [({"hang": True}, "did not answer within 0.15 s"), ({"status": 500}, "500: out of order")]
)
def test_a_canary_without_a_good_answer_is_failed_and_says_how(manner: dict[str, object], says: str) -> None:
    with in_background(serving(FakeEngine(**manner).handle)) as url:  # type: ignore[arg-type]
        actuator = over(url)[1]
        for outcome in (actuator.rehearse(CANARY), actuator.apply(CANARY, "k"), actuator.look_up(CANARY, "k")):
            assert outcome.status is OutcomeStatus.FAILED
            assert not outcome.permanent
            assert says in outcome.detail


@pytest.mark.parametrize("deadline_s", [0.0, -1.0, 301.0, float("nan")])
def test_a_canary_has_a_sensible_deadline(deadline_s: float, dead_url: str) -> None:
    outcome = over(dead_url)[1].apply(Action("engine.canary", SIM, {"deadline_s": deadline_s}), "k")
    assert outcome.permanent
    assert "deadline_s" in outcome.detail


def test_pausing_without_development_mode_fails_for_good_and_says_why() -> None:
    with in_background(serving(FakeEngine(development=False).handle)) as url:
        outcome = over(url)[1].apply(PAUSE, "k")
        assert (outcome.status, outcome.permanent) == (OutcomeStatus.FAILED, True)
        assert "VLLM_SERVER_DEV_MODE" in outcome.detail


def test_a_pause_without_an_answer_is_looked_up_by_the_engines_state() -> None:
    engine = FakeEngine(hang_switch=True)
    with in_background(serving(engine.handle)) as url:
        actuator = over(url)[1]
        assert actuator.apply(PAUSE, "k").status is OutcomeStatus.UNKNOWN
        assert over(url)[1].look_up(PAUSE, "k").status is OutcomeStatus.DONE
        assert over(url)[1].look_up(RESUME, "k2").status is OutcomeStatus.FAILED


def test_a_pause_done_under_its_key_is_not_done_again_after_a_resume() -> None:
    engine = FakeEngine()
    with in_background(serving(engine.handle)) as url:
        actuator = over(url)[1]
        for action, key in ((PAUSE, "k1"), (RESUME, "k2"), (PAUSE, "k1")):
            assert actuator.apply(action, key).status is OutcomeStatus.DONE
        assert (engine.paused, engine.switches) == (False, 2)


def test_a_pause_mode_that_does_not_exist_is_refused(dead_url: str) -> None:
    outcome = over(dead_url)[1].apply(Action("engine.pause", SIM, {"mode": "gently"}), "k")
    assert outcome.permanent
    assert "keep, wait, abort" in outcome.detail


def test_an_engine_off_the_map_fails_for_good() -> None:
    def nobody(name: str) -> EngineFacts:
        raise KeyError(name)

    for facts_of in (nobody, lambda _name: None):
        outcome = EngineHttpActuator(facts_of).apply(CANARY, "k")
        assert (outcome.status, outcome.permanent) == (OutcomeStatus.FAILED, True)
        assert "not on the map" in outcome.detail


def test_the_verbs_say_what_the_loop_must_know() -> None:
    door, engine = verbs_of(DoorActuator), verbs_of(EngineHttpActuator)
    assert door["door.drain"].takes_capacity
    assert door["door.undrain"].recovery
    assert door["door.set_weight"].parameters == {"weight": (float, ...)}
    assert engine["engine.canary"].harmless
    assert engine["engine.pause"].takes_capacity
    assert engine["engine.resume"].recovery
