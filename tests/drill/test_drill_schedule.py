"""When drills are due: cron, time zones, jitter and freezes, with the hands of the clock moved by the test."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import time_machine
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.drill.calendar import CalmTrigger, DatedFreeze, WeeklyFreeze, cron_trigger, frozen
from agent.drill.card import Card, Verdict
from agent.drill.schedule_file import Schedule, load_schedule
from agent.drill.scheduler import DrillScheduler
from agent.drill.store import DrillBusyError
from runbooks.drill import FleetKind
from serving.clock import SystemClock
from serving.yaml_file import FileError

BERLIN = ZoneInfo("Europe/Berlin")
MONDAY = datetime(2026, 11, 30, 8, 0, 1, tzinfo=UTC)
CARD = Card(
    run="a-1",
    drill="a",
    fleet=FleetKind.SIMULATED,
    decoy=False,
    began_at=0,
    injected_at=1,
    ended_at=2,
    verdict=Verdict.PASSED,
    reasons=[],
    faults=[],
    incidents=[],
    others=[],
    failed_requests=0,
    undone=True,
    steady_again_after=0,
)


def times(trigger: CalmTrigger, start: datetime, count: int) -> list[datetime]:
    found: list[datetime] = []
    previous, now = None, start
    while len(found) < count:
        due = trigger.get_next_fire_time(previous, now)
        assert due is not None
        found.append(due)
        previous, now = due, due
    return found


@pytest.mark.parametrize(
    ("field", "days"),
    [
        ("1-5", "mon,tue,wed,thu,fri"),
        ("0", "sun"),
        ("7", "sun"),
        ("5-1", "mon,fri,sat,sun"),
        ("mon-wed", "mon,tue,wed"),
        ("*/3", "wed,sat,sun"),
    ],
)
def test_days_of_the_week_are_counted_as_cron_counts_them(field: str, days: str) -> None:
    assert str(cron_trigger(f"0 10 * * {field}").fields[4]) == days


@pytest.mark.parametrize("text", ["", "* * * *", "61 * * * *", "0 10 * * 9", "0 10 * * noday", "@daily"])
def test_what_is_no_cron_expression_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="cron expression"):
        cron_trigger(text)


@given(st.integers(0, 10_000), st.floats(0, 3600))
@settings(max_examples=25, deadline=None)
def test_times_are_on_the_hour_plus_jitter_and_never_in_a_freeze(seed: int, jitter: float) -> None:
    freezes = [WeeklyFreeze(days=["fri", "sat"], begins="16:00", ends="06:00"), WeeklyFreeze(days=["mon"])]
    for due in times(CalmTrigger("0 */4 * * *", BERLIN, jitter, freezes, seed), MONDAY, 30):
        local = due.astimezone(BERLIN)
        slot = local.replace(minute=0, second=0, microsecond=0)
        slot -= timedelta(hours=slot.hour % 4)
        assert timedelta(0) <= local - slot <= timedelta(seconds=jitter + 1)
        assert frozen(freezes, local) is None
        assert local.weekday() != 0


def test_the_same_seed_gives_the_same_times() -> None:
    one, two, other = (times(CalmTrigger("0 * * * *", BERLIN, 600, [], seed), MONDAY, 5) for seed in (1, 1, 2))
    assert one == two != other


def test_a_dated_freeze_is_local_and_leaves_its_end_free() -> None:
    freeze = DatedFreeze(begins="2026-12-01 00:00", ends="2026-12-03 00:00")
    (due,) = times(CalmTrigger("0 0 * * *", BERLIN, 0, [freeze], 0), datetime(2026, 11, 30, 12, tzinfo=BERLIN), 1)
    assert due == datetime(2026, 12, 3, 0, 0, tzinfo=BERLIN)


def test_a_schedule_that_is_always_frozen_says_that_nothing_is_due() -> None:
    always = WeeklyFreeze(days=["mon", "tue", "wed", "thu", "fri", "sat", "sun"])
    assert CalmTrigger("0 0 1 1 *", BERLIN, 0, [always], 0).get_next_fire_time(None, MONDAY) is None


class Ran:
    """What was run, and what running does."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.error: BaseException | None = None

    def __call__(self, name: str, _seed: int) -> Card:
        self.names.append(name)
        if self.error is not None:
            raise self.error
        return CARD


@pytest.fixture
def clock() -> Iterator[time_machine.Traveller]:
    with time_machine.travel(MONDAY, tick=False) as traveller:
        yield traveller


def scheduler(ran: Ran, **changes: object) -> DrillScheduler:
    content = {"drills": [{"drill": "a", "cron": "0 * * * *"}, {"drill": "b", "cron": "30 9 * * *"}], **changes}
    return DrillScheduler(Schedule.model_validate(content), ran, SystemClock(), seed=1)


def test_what_is_due_is_run_once_however_late_and_nothing_before(clock: time_machine.Traveller) -> None:
    ran = Ran()
    one = scheduler(ran)
    assert one.step() == pytest.approx(3599)
    assert ran.names == []
    clock.shift(3600)
    one.step()
    assert ran.names == ["a"]
    clock.shift(5 * 3600)  # five slots of a and one of b have passed
    one.step()
    assert sorted(ran.names) == ["a", "a", "b"]
    assert [name for name, _at in one.upcoming()] == ["a", "b"]


def test_what_comes_late_into_a_freeze_is_skipped(clock: time_machine.Traveller) -> None:
    ran = Ran()
    one = scheduler(ran, freezes=[{"days": ["mon"], "begins": "10:30", "ends": "12:00"}])
    clock.shift(3 * 3600)  # due at 9 and 10, looked at only at 11
    one.step()
    assert ran.names == []


def test_a_drill_that_cannot_run_is_passed_over_and_what_ends_the_program_goes_through(
    clock: time_machine.Traveller,
) -> None:
    ran = Ran()
    one = scheduler(ran)
    ran.error = DrillBusyError("another drill is under way")
    clock.shift(3600)
    one.step()
    ran.error = KeyboardInterrupt()
    clock.shift(3600)
    with pytest.raises(KeyboardInterrupt):
        one.step()


def test_a_schedule_is_read_with_every_mistake_at_its_place(tmp_path: Path) -> None:
    path = tmp_path / "schedule.yaml"
    path.write_text("time_zone: Europe/Berlin\ndrills:\n  - {drill: engine-hang, cron: 0 10 * * 1-5, jitter: 600}\n")
    assert load_schedule(path, ["engine-hang"]).jitter_of(load_schedule(path, ["engine-hang"]).drills[0]) == 600
    path.write_text("drills:\n  - drill: engine-hung\n    cron: 0 10 * * 1-5\n")
    with pytest.raises(FileError, match=r"schedule\.yaml:2: drills\[0\]\.drill: is not a drill; did you mean engine-hang"):
        load_schedule(path, ["engine-hang"])
    path.write_text("time_zone: Berlin\ndrills:\n  - drill: engine-hang\n    cron: hourly\n")
    with pytest.raises(FileError) as refused:
        load_schedule(path, ["engine-hang"])
    assert [problem.field for problem in refused.value.problems] == ["time_zone", "drills[0].cron"]
