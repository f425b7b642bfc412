"""Requests that are given one by one come when, where and as long as the list says, and leave when it says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.clock import FakeClock
from serving.virtual.fleet import VirtualFleet
from serving.virtual.given import GivenRequests
from serving.virtual.intervals import covered
from serving.virtual.plan import FleetPlan, ModelPlan
from serving.virtual.queues import Requests

T0 = 1_000.0


def _requests(
    rows: list[int],
    came: list[float],
    leaves: float = np.inf,
    *,
    prompt: float = 50.0,
    output: float = 20.0,
    refused: bool = False,
) -> GivenRequests:
    count = len(rows)
    requests = Requests(np.array(rows), T0 + np.array(came), np.full(count, prompt), np.full(count, output))
    return GivenRequests(requests, requests.arrived + leaves, np.full(count, refused))


def _fleet(requests: GivenRequests, plan: FleetPlan | None = None) -> VirtualFleet:
    fleet = VirtualFleet(plan or FleetPlan.of(3), FakeClock(T0))
    fleet.users.rate[:] = 0.0
    fleet.users.recorded = requests
    fleet.patience = np.inf
    return fleet


def test_each_goes_to_its_engine_and_is_answered_whole() -> None:
    fleet = _fleet(_requests([0, 2, 2], [0.2, 1.4, 1.5]))
    fleet.advance(10)
    assert fleet.door.measures.counters["door.started"].tolist() == [1, 0, 2]
    assert fleet.door.measures.counters["door.finished.ok"].tolist() == [1, 0, 2]
    assert fleet.engines.measures.counters["engine.generation_tokens"].tolist() == pytest.approx([20, 0, 40])


def test_clients_leave_at_their_own_moment_from_the_batch_and_from_the_queue() -> None:
    plan = FleetPlan((ModelPlan(engines=1),), slots=2)
    fleet = _fleet(_requests([0] * 5, [0.1, 0.2, 0.3, 0.4, 0.5], leaves=5.0, output=10_000.0), plan)
    fleet.advance(4)
    assert (fleet.engines.running[0], fleet.engines.waiting[0]) == (2, 3)
    fleet.advance(4)
    assert fleet.engines.in_flight()[0] == 0
    assert (fleet.engines.running[0], fleet.engines.waiting[0]) == (0, 0)
    assert fleet.door.measures.counters["door.finished.timeout"][0] == 5
    assert fleet.engines.measures.counters["engine.finished.abort"][0] == 5


def test_who_leaves_one_queue_leaves_the_order_of_the_others_as_it_was() -> None:
    plan = FleetPlan((ModelPlan(engines=1),), slots=1)
    requests = _requests([0] * 4, [0.1, 0.2, 0.3, 0.4], output=10_000.0)
    requests = GivenRequests(requests.requests, T0 + np.array([99.0, 99.0, 3.0, 99.0]), requests.refused)
    fleet = _fleet(requests, plan)
    fleet.advance(5)
    assert fleet.engines.waiting[0] == 2
    assert fleet.engines.queues.heads(np.array([0])).arrived.tolist() == [T0 + 0.2]


def test_a_request_that_the_api_refuses_never_reaches_the_core() -> None:
    fleet = _fleet(_requests([1, 1], [0.1, 0.2], leaves=1.0, refused=True))
    fleet.advance(5)
    assert fleet.door.measures.counters["door.finished.http_4xx"].tolist() == [0, 2, 0]
    assert fleet.engines.measures.counters["engine.steps"].sum() == 0
    assert fleet.door.measures.counters["door.finished.timeout"].sum() == 0


def test_nobody_is_sent_elsewhere_when_the_engine_is_gone() -> None:
    fleet = _fleet(_requests([0, 1], [2.1, 2.2]))
    fleet.kill(np.array([0]))
    fleet.advance(6)
    assert fleet.door.measures.counters["door.finished.connection"].tolist() == [1, 0, 0]
    assert fleet.door.measures.counters["door.finished.ok"].tolist() == [0, 1, 0]


def test_an_engine_steps_only_while_it_has_something_to_do() -> None:
    fleet = _fleet(_requests([0, 0], [0.1, 5.1], output=10.0))
    fleet.advance(20)
    assert fleet.engines.measures.counters["engine.steps"][0] == pytest.approx(2 * 10, rel=0.15)


def test_requests_hold_whole_blocks_of_the_cache() -> None:
    plan = FleetPlan((ModelPlan(engines=1, kv_tokens=1_280.0, block_tokens=128.0),))
    fleet = _fleet(_requests([0, 0], [0.1, 0.2], prompt=10.0, output=100.0), plan)
    fleet.advance(1)
    assert fleet.engines.kv_usage[0] == pytest.approx(0.2)


def test_a_list_out_of_order_or_of_uneven_columns_is_refused() -> None:
    with pytest.raises(ValueError, match="in the order"):
        _requests([0, 0], [2.0, 1.0])
    right = _requests([0], [1.0])
    with pytest.raises(ValueError, match="1 requests with 2 leaves"):
        GivenRequests(right.requests, np.zeros(2), right.refused)


SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)).map(sorted), min_size=1, max_size=8)


@given(st.lists(SPANS, min_size=1, max_size=4))
def test_covered_is_the_length_of_the_union_of_each_row(spans: list[list[list[int]]]) -> None:
    flat = [(row, start, end) for row, some in enumerate(spans) for start, end in some]
    rows, starts, ends = (np.array(column) for column in zip(*flat, strict=True))
    union = [len({moment for start, end in some for moment in range(start, end)}) for some in spans]
    assert covered(rows, starts.astype(np.float64), ends.astype(np.float64), len(spans)).tolist() == union
