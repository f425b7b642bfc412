"""Orders to the door: who may undo whose drain, each key once, and a state file that outlives the door."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from door_ring import MakeRing, Upstream, ring_of
from hypothesis import given
from hypothesis import strategies as st

from serving.clock import FakeClock
from serving.fleet.topology import EngineFacts, Topology
from serving.gateway.orders import KEPT_OPERATIONS, WARDEN, Order, Orders, OrderVerb, Refusal, Standing, carry_out
from serving.gateway.server import DoorSettings, running_door
from serving.gateway.state_file import StateFileError, load_orders, save_orders

DRAIN, UNDRAIN, WEIGHT = OrderVerb.DRAIN, OrderVerb.UNDRAIN, OrderVerb.SET_WEIGHT
some_orders = st.lists(
    st.builds(
        Order,
        st.sampled_from(["k1", "k2", "k3", "k4"]),
        st.sampled_from(OrderVerb),
        st.sampled_from(["a", "b"]),
        st.sampled_from([WARDEN, "ana", "ben"]),
        st.sampled_from([0.0, 0.5, 2.0]),
    ),
    max_size=12,
)


def after(orders: Orders, *given_orders: Order) -> Orders:
    for order in given_orders:
        result = carry_out(orders, order, 0.0)
        orders = orders if isinstance(result, Refusal) else result[0]
    return orders


def test_a_persons_drain_is_never_undone_by_the_warden() -> None:
    drained = after(Orders(), Order("k1", DRAIN, "a", "ana"))
    result = carry_out(drained, Order("k2", UNDRAIN, "a"), 0.0)
    assert isinstance(result, Refusal)
    assert "'ana'" in result.says
    assert after(drained, Order("k3", UNDRAIN, "a", "ben")).standing("a").drained_by is None


def test_a_persons_drain_takes_over_the_wardens_and_not_the_other_way_round() -> None:
    taken = after(Orders(), Order("k1", DRAIN, "a"), Order("k2", DRAIN, "a", "ana"))
    assert taken.standing("a").drained_by == "ana"
    assert after(taken, Order("k3", DRAIN, "a")).standing("a").drained_by == "ana"


@given(some_orders)
def test_each_key_changes_the_door_at_most_once(given_orders: list[Order]) -> None:
    orders = Orders()
    for order in given_orders:
        known = order.key in orders.operations
        later = after(orders, order)
        if known:
            assert later is orders
        orders = later


@given(some_orders)
def test_the_warden_never_brings_back_what_a_person_drained(given_orders: list[Order]) -> None:
    orders = Orders()
    for order in given_orders:
        before = orders.standing("a").drained_by
        orders = after(orders, order)
        if before not in (None, WARDEN) and order.by == WARDEN:
            assert orders.standing("a").drained_by == before


@pytest.mark.parametrize("weight", [0.0, -1.0, 1000.0, float("nan"), float("inf")])
def test_a_weight_that_is_a_hidden_drain_or_no_number_is_refused(weight: float) -> None:
    assert isinstance(carry_out(Orders(), Order("k", WEIGHT, "a", weight=weight), 0.0), Refusal)


def test_only_recent_operations_are_kept() -> None:
    orders = after(Orders(), *(Order(f"k{n}", DRAIN, "a") for n in range(KEPT_OPERATIONS + 3)))
    assert len(orders.operations) == KEPT_OPERATIONS
    assert "k2" not in orders.operations
    assert "k3" in orders.operations


@given(some_orders)
def test_what_is_stored_is_what_is_read(given_orders: list[Order]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "state.json"
        orders = after(Orders(), *given_orders)
        save_orders(path, orders)
        read = load_orders(path)
        assert (dict(read.engines), dict(read.operations)) == (dict(orders.engines), dict(orders.operations))
        assert [p.name for p in path.parent.iterdir()] == ["state.json"]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"version": 2, "engines": {}, "operations": []}', '{"engines": {"a": {"wait": 1}}, "operations": []}'],
)
def test_a_state_file_that_cannot_be_understood_is_said_and_kept(tmp_path: Path, text: str) -> None:
    path = tmp_path / "state.json"
    path.write_text(text)
    with pytest.raises(StateFileError, match=r"state\.json: cannot read"):
        load_orders(path)
    assert path.read_text() == text


def test_no_state_file_means_no_orders(tmp_path: Path) -> None:
    assert load_orders(tmp_path / "none.json") == Orders()


async def test_a_drained_engine_gets_nothing_new_until_it_is_undrained(make_ring: MakeRing) -> None:
    ring = await make_ring(one := Upstream("one"), Upstream("two"))
    status, answer = await ring.order("one/drain", key="k1", by="ana")
    assert (status, answer["verb"], answer["state"]["drained_by"]) == (200, "door.drain", "ana")
    for _ in range(10):
        await ring.complete()
    assert not one.seen
    assert await ring.metric("door:drained", "one") == 1
    assert (await ring.order("one/undrain", key="k2"))[0] == 409
    assert (await ring.order("one/undrain", key="k2", by="ana"))[0] == 200
    for _ in range(20):
        await ring.complete()
    assert one.seen


async def test_with_every_engine_drained_users_are_told_when_to_come_back(make_ring: MakeRing) -> None:
    ring = await make_ring(Upstream("one"))
    await ring.order("one/drain", key="k")
    async with ring.client.post(f"{ring.door.url}/v1/completions", json={"model": "m"}) as response:
        assert response.status == 503
        assert int(response.headers["Retry-After"]) > 0
        assert (await response.json())["error"]["code"] == "no_engine"
    async with ring.client.get(f"{ring.door.url}/health") as response:
        assert response.status == 503


async def test_a_request_in_flight_survives_a_drain(make_ring: MakeRing) -> None:
    ring = await make_ring(one := Upstream("one", hang_after_first_byte=True))
    async with ring.client.post(f"{ring.door.url}/v1/completions", json={"model": "m", "stream": True}) as response:
        first = await response.content.readany()
        await ring.order("one/drain", key="k")
        one.release.set()
        assert (first + await response.content.read()).endswith(b"[DONE]\n\n")


async def test_an_operation_is_found_by_its_key(make_ring: MakeRing) -> None:
    ring = await make_ring(Upstream("one"))
    await ring.order("one/weight", key="inc 1/weight", weight=0.5)
    async with ring.client.get(f"{ring.door.admin_url}/admin/operations/inc%201%2Fweight") as response:
        found = await response.json()
    assert (found["key"], found["verb"], found["engine"]) == ("inc 1/weight", "door.set_weight", "one")
    assert (found["before"]["weight"], found["after"]["weight"]) == (1.0, 0.5)
    async with ring.client.get(f"{ring.door.admin_url}/admin/operations/other") as response:
        assert response.status == 404
    async with ring.client.get(f"{ring.door.admin_url}/admin/engines") as response:
        row = (await response.json())[0]
    assert set(row) == {"name", "url", "model", "weight", "drained", "drained_by", "ejected", "in_flight"}


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("nobody/drain", {"key": "k"}, 404, "known engines: one"),
        ("one/drain", {}, 400, "key"),
        ("one/drain", {"key": ""}, 400, "key"),
        ("one/drain", {"key": "k", "for": "fun"}, 400, "for"),
        ("one/weight", {"key": "k", "weight": "heavy"}, 400, "weight"),
        ("one/weight", {"key": "k", "weight": 0}, 409, "drain it"),
    ],
)
async def test_a_bad_order_is_refused_with_the_reason(
    make_ring: MakeRing, path: str, body: dict[str, object], status: int, says: str
) -> None:
    ring = await make_ring(Upstream("one"))
    answered, content = await ring.order(path, **body)
    assert answered == status
    assert says in str(content["error"])


async def test_orders_need_the_token_where_there_is_one(make_ring: MakeRing) -> None:
    ring = await make_ring(Upstream("one"), admin_token="t0ken")  # noqa: S106 - opens a door that lives as long as the test
    for headers, status in (({}, 401), ({"Authorization": "Bearer nope"}, 401), ({"Authorization": "Bearer t0ken"}, 200)):
        async with ring.client.get(f"{ring.door.admin_url}/admin/engines", headers=headers) as response:
            assert response.status == status
    assert (await ring.complete())[0] == 200


async def test_users_cannot_give_orders(make_ring: MakeRing) -> None:
    ring = await make_ring(Upstream("one"))
    async with ring.client.put(f"{ring.door.url}/admin/engines/one/drain", json={"key": "k"}) as response:
        assert response.status == 404


async def test_orders_survive_a_restart_of_the_door(tmp_path: Path) -> None:
    state, one, two = tmp_path / "door" / "state.json", Upstream("one"), Upstream("two")
    async with ring_of(one, two, state=state) as ring:
        await ring.order("one/drain", key="k1", by="ana")
        await ring.order("two/weight", key="k2", weight=2.5)
    assert json.loads(state.read_text())["engines"]["one"]["drained_by"] == "ana"
    async with ring_of(one, two, state=state) as ring:
        assert await ring.metric("door:drained", "one") == 1
        assert await ring.metric("door:weight", "two") == 2.5
        status, answer = await ring.order("two/weight", key="k2", weight=9.0)
        assert (status, answer["state"]["weight"]) == (200, 2.5)
        assert (await ring.order("one/undrain", key="k3"))[0] == 409


async def test_an_order_that_cannot_be_stored_is_not_carried_out(tmp_path: Path) -> None:
    async with ring_of(Upstream("one"), state=tmp_path / "state.json") as ring:
        (tmp_path / "state.json").mkdir()
        status, answer = await ring.order("one/drain", key="k")
        assert status == 500
        assert "not carried out" in str(answer["error"])
        assert await ring.metric("door:drained", "one") == 0
        assert (await ring.complete())[0] == 200


async def test_a_changed_map_keeps_what_is_known_of_the_engines_that_stay() -> None:
    here, there = EngineFacts("a", "http://127.0.0.1:1", "m"), EngineFacts("a", "http://127.0.0.1:2", "m")
    async with running_door(Topology([here]), DoorSettings(grace_s=0), FakeClock()) as door:
        seat = door.pool.seat("a")
        assert seat is not None
        seat.tally.started = 5
        door.pool.orders = Orders({"a": Standing(weight=3.0)})
        door.replace_engines(Topology([there, EngineFacts("b", "http://127.0.0.1:3", "n")]))
        assert [s.facts.url for s in door.pool.seats] == ["http://127.0.0.1:2", "http://127.0.0.1:3"]
        assert (seat.tally.started, door.pool.standing(seat).weight) == (5, 3.0)
        assert door.pool.models == ("m", "n")
