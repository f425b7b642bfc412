"""Who is told what and when: at least once, in order, once an incident where that is wished, and no sink delays another."""

import threading
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_sink import LATER, REFUSED, ScriptedSink
from told_lives import HUNG, NIGHT, Life, approval_request, escalated_hang, recommendation, repaired_hang

from agent.incident import Closed, Ending, IncidentEvent, IncidentState
from agent.journal.memory import MemoryJournal
from agent.journal.port import JournalError, Note
from agent.report.arrival import NEWCOMER
from agent.report.courier import FIRST_PAUSE, STALE
from agent.report.dispatcher import Dispatcher
from agent.report.notice import Delivery, DeliveryStatus, Manner, NoticeKind
from serving.clock import FakeClock, SystemClock

PLENTY = 100.0


class Night:
    """A journal, sinks and a dispatcher at one moment of the night; `restart` forgets all but the journal."""

    def __init__(self, *sinks: ScriptedSink) -> None:
        self.journal = MemoryJournal()
        self.journal.note(Note(NIGHT - 100, "loop.started", "the loop started"))
        self.sinks = sinks
        self.clock = FakeClock(NIGHT)
        self.counts: Counter[tuple[str, str]] = Counter()
        self.restart()

    def restart(self) -> None:
        def count(sink: str, result: str) -> None:
            self.counts[sink, result] += 1

        self.dispatcher = Dispatcher(self.journal, self.sinks, self.clock, count)

    def write(self, *events: IncidentEvent) -> None:
        for event in events:
            self.journal.append(event)

    def tell(self, at: float) -> int:
        """What is due `at` seconds into the night."""
        self.clock.advance(max(0.0, NIGHT + at - self.clock.now()))
        return self.dispatcher.dispatch(NIGHT + at, PLENTY)


def stories(**kwargs: object) -> ScriptedSink:
    return ScriptedSink(name="stories", manner=Manner.STORIES, **kwargs)  # type: ignore[arg-type]


def test_every_transition_is_told_once_and_in_order() -> None:
    sink = ScriptedSink()
    night = Night(sink)
    events = repaired_hang().events
    night.write(*events)
    night.tell(60)
    night.tell(61)
    assert [notice.event for notice in sink.heard[1:]] == events
    assert all(earlier.seq < later.seq for earlier, later in pairwise(sink.heard))
    assert sink.heard[0].kind is NoticeKind.NOTE


def test_an_incident_stands_in_a_notice_as_it_stood_at_that_transition() -> None:
    sink = ScriptedSink()
    night = Night(sink)
    night.write(*repaired_hang().events)
    night.tell(60)
    states = [notice.incident.state for notice in sink.heard if notice.incident]
    assert states[0] is IncidentState.OPEN
    assert states[-1] is IncidentState.RESOLVED
    assert states[-2] is IncidentState.VERIFYING


def test_a_notice_that_may_be_taken_later_is_tried_again_after_a_pause_and_nothing_overtakes_it() -> None:
    sink = ScriptedSink(script=[LATER])
    night = Night(sink)
    night.write(*repaired_hang().events)
    assert night.tell(60) == 0
    assert night.tell(61) == 0
    assert sink.asked == 1
    night.tell(60 + FIRST_PAUSE)
    assert [notice.event for notice in sink.heard[1:]] == repaired_hang().events


def test_the_pause_grows_while_the_sink_stays_away_and_is_over_once_it_answers() -> None:
    sink = ScriptedSink(script=[LATER] * 4)
    night = Night(sink)
    night.write(*repaired_hang().events)
    asked = []
    for second in range(60, 200):
        night.tell(second)
        asked.append(sink.asked)
    tries = [second for second in range(1, len(asked)) if asked[second] > asked[second - 1]]
    assert tries[:4] == [5, 15, 35, 75]
    assert len(sink.heard) == len(repaired_hang().events) + 1


def test_a_pause_that_the_receiver_asked_for_is_kept() -> None:
    sink = ScriptedSink(script=[Delivery(DeliveryStatus.RETRY_LATER, "HTTP 429", retry_after=40.0)])
    night = Night(sink)
    night.tell(10)
    night.tell(49)
    assert sink.asked == 1
    night.tell(50)
    assert len(sink.heard) == 1


def test_a_refused_notice_is_passed_over_and_counted() -> None:
    sink = ScriptedSink(script=[REFUSED])
    night = Night(sink)
    night.write(*repaired_hang().events)
    night.tell(60)
    assert len(sink.heard) == len(repaired_hang().events)
    assert night.counts["scripted", "failed"] == 1
    assert night.counts["scripted", "delivered"] == len(repaired_hang().events)


def test_a_sink_that_breaks_its_promise_costs_only_its_own_messages() -> None:
    broken, well = ScriptedSink(name="broken", script=[RuntimeError("boom")] * 99), ScriptedSink(name="well")
    night = Night(broken, well)
    night.write(*repaired_hang().events)
    night.tell(60)
    assert not broken.heard
    assert len(well.heard) == len(repaired_hang().events) + 1
    assert night.counts["broken", "failed"] == len(well.heard)


@settings(max_examples=40)
@given(st.lists(st.integers(0, 3), max_size=12), st.data())
def test_at_least_once_across_restarts_and_failures(stops: list[int], data: st.DataObject) -> None:
    """Whatever fails, and however often the warden starts anew, each transition is heard, first hearings in order."""
    script = data.draw(st.lists(st.sampled_from([LATER, Delivery(DeliveryStatus.DELIVERED)]), max_size=10))
    sink = ScriptedSink(script=list(script))
    night = Night(sink)
    pending = [*repaired_hang().events, *escalated_hang().events]
    at = 100.0
    for count in stops:
        night.write(*pending[:count])
        del pending[:count]
        night.tell(at)
        night.restart()
        at += 400
    night.write(*pending)
    for _ in range(len(script) + 2):
        night.tell(at)
        at += 400
    first = list(dict.fromkeys(notice.id for notice in sink.heard))
    assert len(first) == len(repaired_hang().events) + len(escalated_hang().events) + 1
    assert first == [notice.id for notice in sorted({n.id: n for n in sink.heard}.values(), key=lambda notice: notice.seq)]


def test_a_crash_between_telling_and_remembering_repeats_the_notice_under_the_same_id() -> None:
    sink = ScriptedSink()
    night = Night(sink)
    night.tell(0)
    seq = night.journal.note(Note(NIGHT, "breaker.open", "the breaker opened"))
    remember, night.journal.set_cursor = night.journal.set_cursor, _fail  # type: ignore[method-assign]
    night.tell(1)
    night.journal.set_cursor = remember  # type: ignore[method-assign]
    night.restart()
    night.tell(20)
    assert [notice.id for notice in sink.heard][1:] == [f"note/{seq}"] * 2


def _fail(*_: object, **__: object) -> None:
    raise JournalError("the disk is full")


def test_an_unreadable_journal_is_counted_and_left_alone_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    night = Night(ScriptedSink())
    with monkeypatch.context() as patch:
        patch.setattr(night.journal, "events", _fail)
        night.tell(1)
        night.tell(2)
    assert night.counts["scripted", "journal_unreadable"] == 1
    night.tell(2 + FIRST_PAUSE)
    assert night.counts["scripted", "delivered"] == 1


def test_what_is_a_day_old_is_dropped_and_counted() -> None:
    sink = ScriptedSink(script=[LATER])
    night = Night(sink)
    night.tell(0)
    night.write(*repaired_hang().events)
    night.tell(STALE + 1_000)
    assert not sink.heard
    assert night.counts["scripted", "stale"] == len(repaired_hang().events) + 1


def test_a_new_sink_hears_transitions_from_its_coming_on_only() -> None:
    old, new = ScriptedSink(name="old"), ScriptedSink(name="new")
    night = Night(old)
    night.write(*repaired_hang().events)
    night.tell(60)
    night.sinks = (old, new)
    night.restart()
    night.tell(NEWCOMER + 1_000)
    assert len(old.heard) == len(repaired_hang().events) + 1
    assert not new.heard
    night.write(*approval_request().events[:1])
    night.tell(NEWCOMER + 1_001)
    assert [notice.event for notice in new.heard] == approval_request().events[:1]


def test_a_new_sink_is_told_the_stories_that_are_not_over() -> None:
    new = stories()
    night = Night()
    night.write(*repaired_hang().events, *approval_request().events, *escalated_hang().events)
    night.sinks = (new,)
    night.restart()
    night.tell(NEWCOMER + 1_000)
    assert [notice.incident.id for notice in new.heard] == ["inc-9"]
    night.restart()
    night.tell(NEWCOMER + 1_001)
    assert len(new.heard) == 1


def test_a_sink_that_was_never_reached_keeps_what_waits_for_it_across_restarts() -> None:
    sink = ScriptedSink(script=[LATER] * 3)
    night = Night(sink)
    for hour in range(4):
        night.tell(hour * 3_600)
        night.restart()
    assert [notice.id for notice in sink.heard] == ["note/1"]


def test_a_budget_of_no_time_still_tells_one_notice_a_sink() -> None:
    one, two = ScriptedSink(name="one"), ScriptedSink(name="two")
    night = Night(one, two)
    night.write(*repaired_hang().events)
    night.dispatcher.dispatch(NIGHT + 60, 0.0)
    assert (len(one.heard), len(two.heard)) == (1, 1)


def test_a_repaired_incident_is_told_as_one_story_when_it_ends() -> None:
    sink = stories()
    night = Night(sink)
    for event in repaired_hang().events:
        night.write(event)
        night.tell(event.at - NIGHT)
    night.tell(400)
    assert [notice.kind for notice in sink.heard] == [NoticeKind.STORY]
    assert sink.heard[0].story.headline == "Engine sim-2 was hung: repaired"


def test_an_incident_that_lasts_is_told_after_a_while_and_again_when_it_ends() -> None:
    sink = stories(patience=10)
    night = Night(sink)
    events = repaired_hang().events
    night.write(*events[:-1])
    night.tell(21)
    assert not sink.heard
    night.tell(22)
    night.tell(30)
    assert [notice.kind for notice in sink.heard] == [NoticeKind.STORY]
    night.write(events[-1])
    night.tell(56)
    night.tell(57)
    assert [notice.kind for notice in sink.heard] == [NoticeKind.STORY, NoticeKind.FOLLOW_UP]


@pytest.mark.parametrize("life", [approval_request, recommendation, escalated_hang], ids=lambda life: life.__name__)
def test_an_incident_that_needs_a_person_is_told_at_once(life: object) -> None:
    sink = stories()
    night = Night(sink)
    night.write(*life().events)  # type: ignore[operator]
    night.tell(80)
    assert [(notice.kind, notice.story.needs_person) for notice in sink.heard] == [(NoticeKind.STORY, True)]


def test_a_restart_neither_repeats_a_story_nor_forgets_one() -> None:
    sink = stories()
    night = Night(sink)
    asked, hung = approval_request(), Life("inc-7", HUNG)
    night.write(*asked.events, *hung.events)
    night.tell(20)
    assert [notice.incident.id for notice in sink.heard] == ["inc-9"]
    night.restart()
    night.tell(21)
    assert len(sink.heard) == 1
    night.restart()
    night.tell(12 + 120)
    assert [notice.incident.id for notice in sink.heard] == ["inc-9", "inc-7"]
    night.restart()
    night.write(*hung.end(140, IncidentState.RESOLVED, Ending.HEALED, "gone").events[-1:])
    night.tell(140)
    assert [notice.kind for notice in sink.heard][2:] == [NoticeKind.FOLLOW_UP]


def test_an_escalated_incident_that_is_closed_later_gets_one_more_line() -> None:
    sink = stories()
    night = Night(sink)
    life = escalated_hang()
    night.write(*life.events)
    night.tell(80)
    night.restart()
    night.write(Closed(life.id, NIGHT + 300, "its cause stayed away for 120 s"))
    night.tell(300)
    night.tell(301)
    assert [notice.kind for notice in sink.heard] == [NoticeKind.STORY, NoticeKind.FOLLOW_UP]
    assert "no longer seen" in sink.heard[1].story.headline


def test_a_story_that_may_be_taken_later_tells_the_newest_state_then() -> None:
    sink = stories(script=[LATER])
    night = Night(sink)
    life = approval_request()
    night.write(*life.events)
    night.tell(10)
    before = len(life.events)
    life.answer(12, approved=True).begin(12, "engine-kv-pressure").verify(13)
    life.end(14, IncidentState.RESOLVED, Ending.REPAIRED, "held for 20 s")
    night.write(*life.events[before:])
    night.tell(10 + FIRST_PAUSE)
    assert [notice.story.headline for notice in sink.heard] == ["Engine sim-2 was short of KV cache: repaired"]


def test_a_story_refused_for_good_is_not_told_again() -> None:
    sink = stories(script=[REFUSED])
    night = Night(sink)
    night.write(*repaired_hang().events)
    for second in (60, 100, 200):
        night.tell(second)
    assert sink.asked == 1
    assert night.counts["stories", "failed"] == 1


@settings(max_examples=40)
@given(st.lists(st.integers(1, 4), max_size=10), st.sets(st.integers(0, 10)))
def test_no_incident_is_told_as_a_story_twice_however_often_the_warden_restarts(
    steps: list[int], restarts: set[int]
) -> None:
    sink = stories(patience=15)
    night = Night(sink)
    events = sorted([*repaired_hang().events, *escalated_hang().events, *approval_request().events], key=lambda e: e.at)
    turn = 0
    while events:
        count = steps[turn % len(steps)] if steps else 3
        for event in events[:count]:
            night.write(event)
        at = events[min(count, len(events)) - 1].at - NIGHT
        del events[:count]
        night.tell(at)
        if turn in restarts:
            night.restart()
        turn += 1
    night.tell(500)
    told = Counter(notice.incident.id for notice in sink.heard if notice.kind is NoticeKind.STORY)
    assert told == Counter(["inc-7", "inc-8", "inc-9"])
    ids = [notice.id for notice in sink.heard]
    assert len(set(ids)) == len(ids)


def test_two_sinks_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="same name"):
        Night(ScriptedSink(), ScriptedSink())


def test_in_threads_a_sink_that_hangs_delays_nobody_else_and_the_rest_is_told_on_stop() -> None:
    heard, release = threading.Event(), threading.Event()

    class Hanging(ScriptedSink):
        def deliver(self, notice: object) -> Delivery:
            release.wait(30)
            return super().deliver(notice)  # type: ignore[arg-type]

    class Telling(ScriptedSink):
        def deliver(self, notice: object) -> Delivery:
            heard.set()
            return super().deliver(notice)  # type: ignore[arg-type]

    hanging, telling = Hanging(name="hanging"), Telling(name="telling")
    journal = MemoryJournal()
    clock = SystemClock()
    dispatcher = Dispatcher(journal, (hanging, telling), clock)
    journal.note(Note(clock.now(), "loop.started", "the loop started"))
    dispatcher.start()
    assert heard.wait(20)
    assert not hanging.heard
    journal.note(Note(clock.now(), "loop.stopped", "the loop stopped"))
    release.set()
    dispatcher.stop()
    for sink in (hanging, telling):
        assert [notice.event.kind for notice in sink.heard] == ["loop.started", "loop.stopped"]
        assert sink.closed


def test_of_several_wardens_only_the_leader_tells_and_goes_on_where_the_last_one_stopped() -> None:
    """A warden that leads again reads from the journal what was told meanwhile, not from its memory."""
    clock, journal = FakeClock(), MemoryJournal()
    mine, theirs = ScriptedSink(name="chat"), ScriptedSink(name="chat")
    leading = [True]
    me = Dispatcher(journal, (mine,), clock, leads=lambda: leading[0])
    other = Dispatcher(journal, (theirs,), clock, leads=lambda: not leading[0])
    for says in ("one", "two", "three", "four"):
        journal.note(Note(clock.now(), "loop.started", says))
        for dispatcher in (me, other):
            for courier in dispatcher._couriers:
                dispatcher._run(courier, 10.0)
        leading[0] = not leading[0]
    assert [notice.event.says for notice in mine.heard] == ["one", "three"]
    assert [notice.event.says for notice in theirs.heard] == ["two", "four"]
