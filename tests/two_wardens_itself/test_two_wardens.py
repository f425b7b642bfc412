"""Two wardens as processes, their leader struck in mid-action: no action twice, never two writers, by the audit log."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from two_wardens.stamp import stamp_name
from two_wardens.verdict import NodeWrite, judge

from agent.journal.port import Entry, Note

if TYPE_CHECKING:
    from control_plane.server import ControlPlane
    from postgres.server import PostgresServer

QUICK = {"lease": 6, "renew": 4.2, "retry": 1.2, "request": 1.1}
STRIKES = [("kill", "checked"), ("freeze", "checked"), ("cut_api", "checked"), ("cut_all", "sent"), ("freeze", "read")]


@pytest.mark.real_kubernetes
@pytest.mark.real_postgres
def test_whatever_happens_to_the_leader_nothing_is_done_twice_and_no_two_ever_write(
    control_plane: "ControlPlane", postgres_server: "PostgresServer", namespace: str, tmp_path: Path
) -> None:
    from two_wardens.trials import bench  # noqa: PLC0415 - needs the extra `kubernetes`

    with bench(control_plane, postgres_server, namespace, tmp_path, election=QUICK) as two:
        assert two.rest(8.0) == 0
        for kind, point in STRIKES:
            two.strike(kind, point)
        verdict = two.conclude()
    assert verdict.clean, verdict
    assert verdict.stored > 2 * len(STRIKES)
    assert verdict.late >= 2, "what was frozen or cut right before a write came late, and was not stored"
    assert verdict.fences >= len(STRIKES), "what the old leader was at was looked up"


def write(at: float, term: int, stamp: str, code: int = 200) -> NodeWrite:
    return NodeWrite(at, "node-0", term, stamp, code)


def test_the_verdict_sees_a_write_that_was_stored_twice() -> None:
    verdict = judge([write(1.0, 1, "s"), write(2.0, 1, "s"), write(3.0, 1, "t", 409)], [], {"s": ""}, ["s"])
    assert verdict.doubles == ("s was stored 2 times",)
    assert not verdict.clean


def test_the_verdict_sees_a_write_of_an_earlier_term_after_one_of_a_later() -> None:
    crossed = judge([write(1.0, 2, ""), write(2.0, 1, "s")], [], {"s": ""}, ["s"])
    assert crossed.overlaps == ("term 1 wrote s at 2.000 after term 2",)
    refused = judge([write(1.0, 2, ""), write(2.0, 1, "s", 409)], [], {}, [])
    assert refused.clean
    assert refused.late == 1


def test_the_verdict_sees_a_write_that_was_stored_although_it_was_said_to_have_failed() -> None:
    late = NodeWrite(3.0, "node-0", 1, "s", 504, key="a/1")
    verdict = judge([NodeWrite(2.0, "node-0", 2, "s", 200, key="a/2"), late], [], {"s": "a/1"}, ["s"])
    assert verdict.altered == ("s",)
    assert not verdict.clean


def test_the_verdict_sees_terms_that_cross_in_the_journal_and_work_that_was_lost() -> None:
    entries = [Entry(seq, Note(1.0, "loop.started", "x"), term) for seq, term in ((1, 1), (2, 2), (3, None), (4, 1))]
    verdict = judge([], entries, {}, [stamp_name(1, 1)])
    assert verdict.journal_overlaps == ("entry 4 of term 1 follows one of term 2",)
    assert verdict.lost == (stamp_name(1, 1),)
