"""A real process over a real file is killed with SIGKILL at every moment in turn, and the next one goes on from there."""

import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import killed_process
from killed_process import effects_in
from walked_warden import STEPS

from agent.incident import Incident, IncidentState
from agent.journal.stored import open_journal

DEADLINE_S = 60.0  # generous: only a hang ends here


def one_life(directory: Path, spare: Callable[[str], bool]) -> str:
    """Start a warden and kill it at its first moment that is not spared; says where it died, or `done`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["agent.act", "agent.journal", "agent.journal.versions"]
    )  # or each life imports for a second
    ours, theirs = context.Pipe()
    process = context.Process(target=killed_process.live, args=(directory, theirs))
    process.start()
    theirs.close()
    try:
        while True:
            assert ours.poll(DEADLINE_S), "the warden hangs"
            where = str(ours.recv())
            if where == "done":
                return where
            if not spare(where):
                assert process.pid is not None
                os.kill(process.pid, signal.SIGKILL)
                return where
            ours.send("go on")
    finally:
        process.join(DEADLINE_S)
        process.close()
        ours.close()


def test_a_warden_killed_at_each_of_its_moments_in_turn_does_everything_once(tmp_path: Path) -> None:
    """Right after each write, right before and right after each action; at each such moment one life ends."""
    deaths: list[str] = []
    while (where := one_life(tmp_path, lambda here: here in deaths)) != "done":
        deaths.append(where)
        assert len(deaths) < 100, deaths
    assert Counter(line["verb"] for line in effects_in(tmp_path / "world")) == dict.fromkeys(dict(STEPS).values(), 1)
    keys = [line["key"] for line in effects_in(tmp_path / "world")]
    assert len(keys) == len(set(keys))
    incident = ended(tmp_path)
    assert incident.state is IncidentState.RESOLVED
    assert [operation.step for operation in incident.operations] == [step for step, _ in STEPS]
    verbs = dict(STEPS).values()
    moments = {*(f"before {verb}" for verb in verbs), *(f"after {verb}" for verb in verbs)}
    moments |= {f"wrote {kind} {step}" for kind in ("Intended", "StepPassed") for step in dict(STEPS)}
    assert moments <= set(deaths), deaths


def test_a_warden_that_is_left_alone_comes_to_the_same_end(tmp_path: Path) -> None:
    assert one_life(tmp_path, lambda _here: True) == "done"
    assert ended(tmp_path).state is IncidentState.RESOLVED
    assert [line["verb"] for line in effects_in(tmp_path / "world")] == [verb for _, verb in STEPS]


def ended(directory: Path) -> Incident:
    with closing(open_journal(directory / "journal.sqlite", create=False)) as journal:
        (incident,) = journal.incidents()
        return incident
