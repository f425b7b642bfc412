"""What every elector keeps to, over every store, in real time: one leads, hand-overs are quick, and no two ever overlap."""

from collections.abc import Callable

from control_plane.waiting import until
from election_stores import QUICK, CutStore, MakeStore

from agent.election.always import AlwaysLeader
from agent.election.candidate import Candidate
from agent.election.mandate import Elector, still_leads
from serving.clock import SystemClock

Make = Callable[..., Candidate]
CLOCK = SystemClock()
HAND_OVER_S = 30.0  # the quick durations allow 12; loaded machines take their time


def leads(elector: Elector) -> bool:
    return elector.mandate() is not None


def test_the_first_leads_and_the_others_know_who(make_candidate: Make) -> None:
    one = make_candidate("warden-a")
    until(lambda: leads(one), HAND_OVER_S, "the first leads")
    other = make_candidate("warden-b")
    until(lambda: other.standing().leader == "warden-a", HAND_OVER_S, "the other knows who leads")
    assert not leads(other)
    assert (one.standing().leading, one.standing().term) == (True, 1)
    assert (other.standing().leading, other.standing().term) == (False, 1)


def test_at_rest_the_leader_stays(make_candidate: Make) -> None:
    one = make_candidate("warden-a")
    until(lambda: leads(one), HAND_OVER_S, "the first leads")
    other, end = make_candidate("warden-b"), CLOCK.monotonic() + 1.5 * QUICK.lease
    until(lambda: CLOCK.monotonic() > end or leads(other), 60, "time passes")
    assert leads(one)
    assert one.standing().term == 1


def test_whoever_leaves_hands_over_at_once_and_in_a_higher_term(make_candidate: Make) -> None:
    one = make_candidate("warden-a")
    until(lambda: leads(one), HAND_OVER_S, "the first leads")
    other = make_candidate("warden-b")
    until(lambda: other.standing().leader, HAND_OVER_S, "the other has looked")
    one.close()
    assert not leads(one)
    left = CLOCK.monotonic()
    until(lambda: leads(other), HAND_OVER_S, "the other leads")
    assert CLOCK.monotonic() - left < QUICK.lease, "it did not wait for the lease to run out"
    assert other.standing().term == 2


def test_a_leader_that_is_cut_off_stops_before_another_leads_and_follows_when_it_is_back(
    make_candidate: Make, make_store: MakeStore
) -> None:
    network = CutStore(make_store())
    one = make_candidate("warden-a", store=network)
    until(lambda: leads(one), HAND_OVER_S, "the first leads")
    other = make_candidate("warden-b")
    network.cut = True
    both: list[float] = []

    def handed_over() -> bool:
        new, old = leads(other), leads(one)  # the new one is asked first: were both to lead, this would see it
        if new and old:
            both.append(CLOCK.monotonic())
        return new

    until(handed_over, HAND_OVER_S, "the other leads", poll_s=0.005)
    assert both == []
    assert one.standing().trouble == "the network is cut"
    network.cut = False
    until(lambda: one.standing().leader == "warden-b", HAND_OVER_S, "the first follows")
    assert one.standing().trouble == ""


def test_a_leader_that_slept_knows_at_once_that_its_mandate_is_over(make_candidate: Make) -> None:
    asleep = make_candidate("warden-a", started=False)
    while not leads(asleep):
        asleep.step()
    mandate = asleep.mandate()
    assert mandate is not None
    other = make_candidate("warden-b")
    until(lambda: leads(other), HAND_OVER_S, "the other leads")
    assert asleep.mandate() is None, "although it asked nobody"
    assert not still_leads(asleep, mandate.term, CLOCK.monotonic(), 0.0)
    for _ in range(3):
        asleep.step()
    assert asleep.standing().leader == "warden-b"


def test_a_mandate_covers_only_what_ends_before_anybody_else_can_lead(make_candidate: Make) -> None:
    one = make_candidate("warden-a")
    until(lambda: leads(one), HAND_OVER_S, "the first leads")
    term, now = one.standing().term, CLOCK.monotonic()
    assert still_leads(one, term, now, QUICK.slack)
    assert not still_leads(one, term, now, QUICK.lease)
    assert not still_leads(one, term + 1, now, 0.0)


def test_a_deposed_leader_comes_back_in_a_term_above_the_one_that_it_was_told_of(make_candidate: Make) -> None:
    one = make_candidate("warden-a")
    until(lambda: leads(one), HAND_OVER_S, "the first leads")
    one.resign(1, floor=7)
    until(lambda: leads(one), HAND_OVER_S, "it leads again")
    assert one.standing().term == 8


def test_the_only_warden_always_leads_in_a_term_above_all_that_were() -> None:
    only = AlwaysLeader("me", lambda: 4)
    mandate = only.mandate()
    assert mandate is not None
    assert mandate.term == 5
    assert still_leads(only, 5, 1e12, 1e6)
    assert only.standing().leading


def test_the_only_warden_that_finds_another_stops_and_says_what_to_do() -> None:
    only = AlwaysLeader("me")
    only.resign(1, floor=2)
    assert only.mandate() is None
    assert "another warden writes to the same journal" in only.standing().trouble
