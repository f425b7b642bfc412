"""A fleet in virtual time behaves as one does: load, faults of its parts, and what they do to users and to telemetry."""

import numpy as np
import pytest

from serving.fleet.entity import Entity, EntityKind
from serving.fleet.topology import Relation
from serving.telemetry.history import History
from serving.telemetry.window import Window
from serving.virtual.fleet import VirtualFleet
from serving.virtual.pauses import Pauses
from serving.virtual.plan import FleetPlan, ModelPlan
from serving.virtual.source import VirtualSource
from serving.virtual.users import Flood

SCRAPE_S = 5.0


class Watched:
    """A fleet with a window over it."""

    def __init__(self, plan: FleetPlan | None = None) -> None:
        self.fleet = VirtualFleet(plan or FleetPlan.of(8))
        self.source = VirtualSource(self.fleet)
        self.history = History(self.fleet.topology, 300.0, 80)
        self.window = self.live(120.0)

    def live(self, seconds: float) -> Window:
        for _ in range(int(seconds / SCRAPE_S)):
            self.fleet.advance(SCRAPE_S)
            reading = self.source.read(self.fleet.topology, self.fleet.now, 2.0)
            self.window = self.history.window(self.fleet.now, self.fleet.topology, (reading,))
        return self.window


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_a_healthy_fleet_answers_everybody_and_keeps_no_queue(watched: Watched) -> None:
    window = watched.live(120.0)
    assert watched.fleet.door.failed == 0
    assert watched.fleet.door.answered > 500
    assert window.latest("engine.waiting", 10.0).max() == 0
    assert (window.quantile("engine.ttft", 0.5, 60.0) < 0.5).all()


def test_the_same_seed_gives_the_same_fleet_and_another_seed_another() -> None:
    tokens = []
    for seed in (1, 1, 2):
        fleet = VirtualFleet(FleetPlan.of(4, seed=seed))
        fleet.advance(60)
        tokens.append(fleet.engines.measures.counters["engine.generation_tokens"].tolist())
    assert tokens[0] == tokens[1] != tokens[2]


def test_what_arrives_is_answered_fails_or_is_still_inside(watched: Watched) -> None:
    fleet = watched.fleet
    fleet.kill(np.array([2]))
    fleet.engines.halted[3] = True
    watched.live(180.0)
    door = fleet.door.measures.counters
    inside = fleet.engines.in_flight()
    ends = door["door.finished.ok"] + door["door.finished.client_closed"] + door["door.finished.connection"]
    np.testing.assert_allclose(door["door.started"], ends + inside)


def test_a_halted_core_steps_no_more_and_its_gauges_keep_what_they_said(watched: Watched) -> None:
    said = watched.window.latest("engine.running", 10.0)[0]
    watched.fleet.engines.halted[0] = True
    window = watched.live(30.0)
    assert window.increase("engine.steps", 20.0)[0] == 0
    assert window.latest("engine.running", 10.0)[0] == said
    assert window.latest("scrape.up", 10.0)[0] == 1
    assert window.latest("door.in_flight", 10.0)[0] > said


def test_a_tick_within_a_pause_is_never_shorter_than_it() -> None:
    rng = np.random.default_rng(1)
    pauses = Pauses(10_000)
    pauses.length[:], pauses.since[:] = rng.uniform(2.0, 20.0, 10_000), rng.uniform(0.0, 1e4, 10_000)
    pauses.every[:] = pauses.length * rng.uniform(1.01, 3.0, 10_000)
    shares = [pauses.within(float(now), 1.0) for now in range(10_000, 10_040)]
    assert np.min(shares) >= 0.0
    assert np.max(shares) == 1.0


def test_a_dead_engine_refuses_and_the_door_sends_its_requests_elsewhere(watched: Watched) -> None:
    watched.fleet.kill(np.array([1]))
    failed = watched.fleet.door.failed
    window = watched.live(60.0)
    assert window.latest("scrape.up", 10.0)[1] == 0
    assert window.latest("door.ejected", 10.0)[1] == 1
    assert watched.fleet.door.failed == failed


def test_a_restarted_engine_is_ready_after_its_start_and_counts_from_zero(watched: Watched) -> None:
    watched.fleet.restart(np.array([1]))
    window = watched.live(30.0)
    assert window.latest("scrape.up", 10.0)[1] == 0
    assert 0 < window.latest("engine.starting_seconds", 10.0)[1] <= 30
    window = watched.live(90.0)
    assert window.latest("scrape.up", 10.0)[1] == 1
    assert window.latest("engine.steps", 10.0)[1] < window.latest("engine.steps", 10.0)[2]
    assert window.increase("engine.steps", 60.0)[1] > 0


def test_a_slow_gpu_slows_its_engine_and_draws_less_power(watched: Watched) -> None:
    watched.fleet.hardware.clock[0] = 0.4
    window = watched.live(120.0)
    pace = window.mean("engine.inter_token", 60.0)
    assert pace[0] > 1.8 * np.median(pace)
    power = window.tables[EntityKind.GPU].latest("gpu.power", 10.0)
    assert power[0] < 0.7 * np.median(power)


def test_one_slow_rank_slows_its_whole_group() -> None:
    watched = Watched(FleetPlan((ModelPlan(engines=4, tp=4),)))
    watched.fleet.hardware.clock[5] = 0.5
    pace = watched.live(120.0).mean("engine.inter_token", 60.0)
    assert pace[1] > 1.6 * np.median(pace)


def test_pauses_hit_all_requests_of_one_engine_and_leave_the_usual_wait_as_it_was(watched: Watched) -> None:
    pauses = watched.fleet.engines.pauses
    pauses.length[0], pauses.every[0], pauses.since[0] = 0.4, 3.0, watched.fleet.now
    window = watched.live(60.0)
    assert window.quantile("engine.inter_token", 0.999, 40.0)[0] > 0.3
    assert window.quantile("engine.inter_token", 0.5, 40.0)[0] < 0.03


def test_long_prompts_at_one_engine_make_first_tokens_late_while_decoding_goes_on(watched: Watched) -> None:
    watched.fleet.users.floods["long"] = Flood(row=0, rps=8.0, prompt=6_000.0, output=20.0)
    window = watched.live(90.0)
    assert window.mean("engine.ttft", 40.0)[0] > 4 * window.mean("engine.ttft", 40.0)[1]
    assert window.latest("engine.waiting.capacity", 10.0)[0] > 5
    assert window.latest("engine.kv_usage", 10.0)[0] < 1


def test_long_answers_fill_the_cache_and_preempt(watched: Watched) -> None:
    watched.fleet.users.floods["long"] = Flood(row=0, rps=3.0, prompt=2_500.0, output=3_000.0)
    window = watched.live(120.0)
    assert window.latest("engine.kv_usage", 10.0)[0] > 0.9
    assert window.increase("engine.preemptions", 100.0)[0] > 0
    assert window.increase("engine.preemptions", 100.0)[1:].max() == 0


def test_clients_give_up_on_what_does_not_answer(watched: Watched) -> None:
    watched.fleet.engines.halted[0] = True
    watched.live(120.0)
    assert watched.fleet.door.measures.counters["door.finished.client_closed"][0] > 0
    assert watched.fleet.door.failed > 0


def test_a_lost_gpu_takes_its_engine_down_and_nothing_else(watched: Watched) -> None:
    watched.fleet.hardware.lost[3] = True
    watched.fleet.hardware.say_xid(watched.fleet.now, 3, 79, "GPU has fallen off the bus")
    window = watched.live(30.0)
    assert np.flatnonzero(window.latest("scrape.up", 10.0) == 0).tolist() == [3]
    assert [(event.kind, event.text[:3]) for event in window.events if event.kind == "xid"] == [("xid", "79:")]


def test_orphaned_memory_keeps_an_engine_from_starting_until_it_is_freed(watched: Watched) -> None:
    watched.fleet.hardware.orphaned[0] = 60 * 2.0**30
    watched.fleet.restart(np.array([0]))
    assert watched.live(200.0).latest("scrape.up", 10.0)[0] == 0
    watched.fleet.hardware.orphaned[0] = 0.0
    assert watched.live(20.0).latest("scrape.up", 10.0)[0] == 1


def test_bad_links_of_a_switch_slow_all_nodes_on_it_and_no_others(watched: Watched) -> None:
    watched = Watched(FleetPlan.of(32))
    watched.fleet.hardware.switch_errors[0] = 0.08
    window = watched.live(90.0)
    pace = window.mean("engine.inter_token", 60.0)
    on_it = watched.fleet.plan.node_switch[watched.fleet.plan.engine_node] == 0
    assert pace[on_it].min() > 1.5 * pace[~on_it].max()
    nodes = window.tables[EntityKind.NODE]
    share = nodes.rate("node.network_errors", 60.0) / nodes.rate("node.network_packets", 60.0)
    assert (share > 0.02).tolist() == (watched.fleet.plan.node_switch == 0).tolist()


def test_repeated_prompts_make_an_expert_hot_and_mixed_ones_do_not() -> None:
    fleet = VirtualFleet(FleetPlan((ModelPlan(engines=4, experts=16),)))
    assert (fleet.experts.imbalance() < 1.6).all()
    fleet.experts.repeated[1] = 0.9
    assert fleet.experts.imbalance()[1] > 6


def test_the_counters_of_experts_are_shown_as_they_are_reduced_from_real_ones() -> None:
    watched = Watched(FleetPlan((ModelPlan(engines=4, experts=16),)))
    watched.live(60.0)
    watched.fleet.experts.repeated[1] = 0.9
    window = watched.live(60.0)
    uneven = window.latest("experts.imbalance", 10.0)
    assert uneven[1] > 5
    assert (np.delete(uneven, 1) < 1.7).all()
    assert window.rate("experts.tokens", 30.0).min() > 0
    dense = Watched(FleetPlan((ModelPlan(engines=2),)))
    assert not [name for name in dense.live(10.0).signals if name.startswith("experts.")]


def test_signals_that_were_renamed_are_absent_and_everything_else_stays(watched: Watched) -> None:
    watched.fleet.pipeline.gone.add("engine.steps")
    window = watched.live(30.0)
    assert (window.age("engine.steps") > 20).all()
    assert (window.age("engine.running") < 10).all()


def test_the_map_joins_gpus_nodes_switches_and_zones() -> None:
    topology = FleetPlan.of(16).topology
    engine = Entity.engine("llama-9")
    assert [other.name for other in topology.related(engine, Relation.RUNS_ON)] == ["n2:1", "n2"]
    assert {other.name for other in topology.ancestors(engine)} >= {"n2", "s1", "z0", "virtual"}


def test_a_model_whose_ranks_do_not_fill_nodes_is_refused() -> None:
    with pytest.raises(ValueError, match="tp 6 does not fill whole nodes of 4"):
        FleetPlan((ModelPlan(tp=6),))
