"""From findings made by hand to diagnoses: what explains what, what stays apart, and when "not enough" is the answer."""

from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.diagnosis.catalogue import DEFAULT, Catalogue, Way, load_catalogue
from agent.diagnosis.diagnosis import Diagnosis
from agent.diagnosis.rank import diagnose
from detectors.catalogue import DETECTORS
from detectors.finding import Evidence, Finding, Symptom
from serving.fleet.entity import Entity, EntityKind
from serving.fleet.topology import EngineFacts, Relation, Topology
from serving.telemetry.columns import HistogramMatrix, SignalMatrix
from serving.telemetry.registry import load_registry
from serving.telemetry.window import Table, Window
from serving.yaml_file import FileError

S = Symptom
NOW = 1_800_000_000.0
ENGINES = tuple(Entity.engine(f"e-{number}") for number in range(5))
MODEL = Entity(EntityKind.MODEL, "m")
DOOR = Entity(EntityKind.GATEWAY, "door")
GPUS = tuple(Entity(EntityKind.GPU, f"n{number // 2}:{number % 2}") for number in range(5))
NODES = tuple(Entity(EntityKind.NODE, f"n{number}") for number in range(3))
SWITCH = Entity(EntityKind.SWITCH, "s0")
SOURCE = Entity(EntityKind.TELEMETRY, "scrape")
CATALOGUE = load_catalogue()
SPECS = load_registry().signals


def topology() -> Topology:
    facts = [EngineFacts(engine.name, f"http://{engine.name}", "m") for engine in ENGINES]
    relations = [(engine, Relation.SCRAPED_BY, SOURCE) for engine in ENGINES]
    relations += [(DOOR, Relation.ROUTES_TO, engine) for engine in ENGINES]
    for number, engine in enumerate(ENGINES):
        gpu, node = GPUS[number], NODES[number // 2]
        relations += [(engine, Relation.RUNS_ON, gpu), (engine, Relation.RUNS_ON, node), (gpu, Relation.MEMBER_OF, node)]
    return Topology(facts, [*relations, *((node, Relation.MEMBER_OF, SWITCH) for node in NODES[:2])])


def window(without: tuple[str, ...] = ()) -> Window:
    """A window in which every signal of the registry can be read, but for those that begin with one of `without`."""
    shown = [name for name in SPECS if not name.startswith(without or ("no such",))]
    one = np.ones((len(ENGINES), 1))
    tables = {}
    for kind, entities in ((EntityKind.GPU, GPUS), (EntityKind.NODE, NODES)):
        full, taken = np.ones((len(entities), 1)), np.full((len(entities), 1), NOW)
        read = {name for detector in DETECTORS for names in detector.needs_for.values() for name in names}
        own = {
            name: SignalMatrix(full, taken)
            for name in read
            if name.startswith(f"{kind}.") and not name.startswith(without or ("no such",))
        }
        tables[kind] = Table(NOW, entities, np.array([NOW]), own)
    at = np.full((len(ENGINES), 1), NOW)
    counts = np.ones((len(ENGINES), 1, 1))
    return Window(
        now=NOW,
        topology=topology(),
        times=np.array([NOW]),
        signals={name: SignalMatrix(one, at) for name in shown if SPECS[name].kind != "histogram"},
        histograms={
            name: HistogramMatrix(np.array([np.inf]), counts, one, at) for name in shown if SPECS[name].kind == "histogram"
        },
        tables=tables,
    )


def finding(symptom: Symptom, entity: Entity, severity: float = 0.7, ago: float = 20.0) -> Finding:
    return Finding(symptom, entity, NOW - ago, severity, (Evidence("engine.steps", "seen", 1.0),))


def names(diagnoses: tuple[Diagnosis, ...]) -> list[tuple[str, str]]:
    return [(one.cause, one.entity.name) for one in diagnoses]


def test_a_hang_explains_its_lost_clients_and_the_load_on_its_peers() -> None:
    found = [
        finding(S.STEPS_FROZEN, ENGINES[0]),
        finding(S.CLIENTS_LEAVING, ENGINES[0], ago=5),
        finding(S.SERVED_BELOW_ARRIVALS, ENGINES[0]),
        finding(S.ARRIVALS_RAISED, ENGINES[1]),
        finding(S.QUEUE_GROWING, ENGINES[1]),
        finding(S.BATCH_FULL, ENGINES[1]),
    ]
    diagnoses = diagnose(window(), found, CATALOGUE)
    assert names(diagnoses) == [("engine.hung", "e-0")]
    assert len(diagnoses[0].explains) == len(found)
    assert diagnoses[0].enough
    assert diagnoses[0].probe is None
    assert "engine.frozen_gauges" in {rival.cause for rival in diagnoses[0].rivals}
    assert all(rival.behind_because for rival in diagnoses[0].rivals)


def test_without_a_door_a_hang_and_frozen_gauges_stay_close_and_a_canary_is_proposed() -> None:
    found = [finding(S.STEPS_FROZEN, ENGINES[0], 0.5), finding(S.GAUGES_FROZEN, ENGINES[0], 0.4)]
    first = diagnose(window(without=("door.",)), found, CATALOGUE)[0]
    assert first.cause in {"engine.hung", "engine.frozen_gauges"}
    assert first.probe == "engine.canary"
    assert "door.in_flight" in first.missing
    assert {rival.cause for rival in first.rivals} & {"engine.hung", "engine.frozen_gauges"}


def test_gauges_frozen_with_an_empty_door_are_no_hang() -> None:
    diagnoses = diagnose(window(), [finding(S.GAUGES_FROZEN, ENGINES[0], 0.6)], CATALOGUE)
    assert names(diagnoses) == [("engine.frozen_gauges", "e-0")]


def test_a_surge_over_the_fleet_is_one_overload_of_the_model() -> None:
    found = [finding(S.ARRIVALS_RAISED, MODEL, 0.45), finding(S.SERVED_BELOW_ARRIVALS, MODEL, 0.5)]
    for engine in ENGINES:  # stronger on each engine than on the model, and yet one surge
        found += [finding(symptom, engine, 0.95) for symptom in (S.ARRIVALS_RAISED, S.QUEUE_GROWING, S.BATCH_FULL)]
    assert names(diagnose(window(), found, CATALOGUE)) == [("overload", "m")]


def test_a_hang_within_a_surge_is_diagnosed_beside_it() -> None:
    found = [
        finding(S.ARRIVALS_RAISED, MODEL),
        finding(S.SERVED_BELOW_ARRIVALS, MODEL),
        finding(S.STEPS_FROZEN, ENGINES[2], 0.8),
    ]
    assert set(names(diagnose(window(), found, CATALOGUE))) == {("overload", "m"), ("engine.hung", "e-2")}


def test_targets_lost_together_are_a_blind_source_and_not_many_deaths() -> None:
    found = [finding(S.MOST_TARGETS_LOST, SOURCE, 0.95)]
    found += [finding(S.TARGET_REFUSED, engine, 0.85) for engine in ENGINES]
    diagnoses = diagnose(window(), found, CATALOGUE)
    assert names(diagnoses) == [("telemetry.blind", "scrape")]


def test_independent_causes_are_diagnosed_apart() -> None:
    found = [
        finding(S.STEPS_FROZEN, ENGINES[0], 0.8),
        finding(S.TARGET_REFUSED, ENGINES[1], 0.9),
        finding(S.REQUESTS_FAILING, ENGINES[1]),
        finding(S.SLOWER_THAN_PEERS, ENGINES[2], 0.8),
    ]
    diagnoses = diagnose(window(), found, CATALOGUE)
    assert set(names(diagnoses)) == {("engine.hung", "e-0"), ("engine.dead", "e-1"), ("engine.slow", "e-2")}
    assert diagnoses[0].score >= diagnoses[-1].score


@pytest.mark.parametrize("sign", [S.RETURNED, S.RESTARTED])
def test_what_follows_a_recovery_is_no_incident(sign: Symptom) -> None:
    found = [finding(sign, ENGINES[0], 0.3)]
    found += [finding(symptom, ENGINES[0]) for symptom in (S.QUEUE_GROWING, S.BATCH_FULL, S.TTFT_RAISED, S.CLIENTS_LEAVING)]
    assert diagnose(window(), found, CATALOGUE) == ()


def test_an_engine_that_stands_again_right_after_a_recovery_is_an_incident() -> None:
    found = [finding(S.RETURNED, ENGINES[0], 0.3), finding(S.STEPS_FROZEN, ENGINES[0], 0.8)]
    assert names(diagnose(window(), found, CATALOGUE)) == [("engine.hung", "e-0")]


def test_what_our_own_repair_makes_of_its_target_is_not_diagnosed() -> None:
    found = [
        finding(S.TARGET_REFUSED, ENGINES[0], 0.9),
        finding(S.ARRIVALS_RAISED, ENGINES[1]),
        finding(S.QUEUE_GROWING, ENGINES[1]),
    ]
    assert names(diagnose(window(), found, CATALOGUE)) == [("engine.dead", "e-0")]
    assert diagnose(window(), found, CATALOGUE, frozenset({ENGINES[0]})) == ()


def test_a_repair_of_one_engine_excuses_no_fault_of_another() -> None:
    found = [finding(S.TARGET_REFUSED, ENGINES[0], 0.9), finding(S.STEPS_FROZEN, ENGINES[1], 0.8)]
    assert names(diagnose(window(), found, CATALOGUE, frozenset({ENGINES[0]}))) == [("engine.hung", "e-1")]


def test_clients_that_leave_a_working_engine_are_the_clients_doing() -> None:
    diagnoses = diagnose(window(), [finding(S.CLIENTS_LEAVING, ENGINES[0], 0.9)], CATALOGUE)
    assert names(diagnoses) == [("clients.leaving", "e-0")]
    assert diagnoses[0].enough


def test_clients_that_left_a_queue_are_not_diagnosed_as_a_whim() -> None:
    found = [finding(S.CLIENTS_LEAVING, ENGINES[0], 0.9), finding(S.QUEUE_WAITED, ENGINES[0])]
    assert not [one for one in diagnose(window(), found, CATALOGUE) if one.enough]


def test_late_first_tokens_under_more_load_are_no_collectors_pause() -> None:
    found = [
        finding(S.TTFT_RAISED, ENGINES[0]),
        finding(S.DECODE_STEADY, ENGINES[0], 0.3),
        finding(S.ARRIVALS_RAISED, ENGINES[0]),
    ]
    assert not [one for one in diagnose(window(), found, CATALOGUE) if one.enough]


def test_a_queue_with_a_full_cache_is_kv_pressure_and_with_a_full_batch_overload() -> None:
    queue = finding(S.QUEUE_GROWING, ENGINES[0])
    kv = diagnose(window(), [queue, finding(S.KV_FULL, ENGINES[0]), finding(S.TTFT_RAISED, ENGINES[0])], CATALOGUE)
    batch = diagnose(window(), [queue, finding(S.BATCH_FULL, ENGINES[0]), finding(S.TTFT_RAISED, ENGINES[0])], CATALOGUE)
    assert names(kv)[0] == ("engine.kv_pressure", "e-0")
    assert names(batch)[0] == ("overload", "e-0")
    assert "overload" in {rival.cause for rival in kv[0].rivals}


def test_no_findings_and_context_alone_are_no_diagnosis() -> None:
    assert diagnose(window(), [], CATALOGUE) == ()
    context = [finding(S.ARRIVALS_RAISED, ENGINES[0]), finding(S.LONG_PROMPTS, ENGINES[0]), finding(S.KV_FULL, ENGINES[1])]
    assert diagnose(window(), context, CATALOGUE) == ()


@pytest.mark.parametrize("number", [n for n, form in enumerate(CATALOGUE.causes) if form.incident])
def test_every_cause_is_the_first_answer_to_its_own_signs(number: int) -> None:
    form = CATALOGUE.causes[number]
    entity = {
        EntityKind.ENGINE: ENGINES[0],
        EntityKind.MODEL: MODEL,
        EntityKind.TELEMETRY: SOURCE,
        EntityKind.GATEWAY: DOOR,
        EntityKind.GPU: GPUS[0],
        EntityKind.NODE: NODES[0],
        EntityKind.SWITCH: SWITCH,
    }[form.on]
    signs = [clause.any[0] for clause in form.must] + list(form.usually)
    first = diagnose(window(), [finding(sign, entity) for sign in dict.fromkeys(signs)], CATALOGUE)[0]
    assert (first.cause, first.entity) == (form.cause, entity)
    assert first.enough


@settings(max_examples=150, deadline=None)
@given(
    chosen=st.lists(
        st.tuples(
            st.sampled_from(list(Symptom)),
            st.sampled_from([*ENGINES, MODEL, SOURCE, DOOR, *GPUS[:2], NODES[0], SWITCH]),
            st.floats(0, 1),
            st.floats(0, 300),
        ),
        max_size=14,
        unique_by=lambda one: (one[0], one[1]),
    ),
    shuffled=st.randoms(use_true_random=False),
    repairs=st.sets(st.sampled_from(ENGINES), max_size=2),
)
def test_whatever_is_found_diagnoses_are_sound_and_do_not_depend_on_order(
    chosen: list[tuple[Symptom, Entity, float, float]], shuffled: Random, repairs: set[Entity]
) -> None:
    found = [finding(*one) for one in chosen]
    diagnoses = diagnose(window(), found, CATALOGUE, frozenset(repairs))
    mixed = list(found)
    shuffled.shuffle(mixed)
    again = diagnose(window(), mixed, CATALOGUE, frozenset(repairs))
    assert [(one.cause, one.entity, one.score, one.enough) for one in diagnoses] == [
        (one.cause, one.entity, one.score, one.enough) for one in again
    ]
    assert len(set(names(diagnoses))) == len(diagnoses)
    for one in diagnoses:
        assert 0.0 <= one.score <= 1.0
        assert one.since <= NOW
        assert set(map(id, one.explains)) <= set(map(id, found))
        assert one.cause in CATALOGUE.names


def test_the_catalogue_holds_the_causes_that_runbooks_are_written_for() -> None:
    assert CATALOGUE.names == {
        "clients.leaving",
        "engine.api_hung",
        "engine.bad_output",
        "engine.dead",
        "engine.frozen_gauges",
        "engine.gc_stall",
        "engine.hung",
        "engine.kv_leak",
        "engine.kv_pressure",
        "engine.memory_leak",
        "engine.queue_stuck",
        "engine.slow",
        "engine.slow_start",
        "engine.start_blocked",
        "experts.hot",
        "fabric.degraded",
        "gateway.broken",
        "gpu.degraded",
        "gpu.faulted",
        "gpu.memory_vampire",
        "node.unhealthy",
        "overload",
        "prefill.saturated",
        "rollout.bad",
        "telemetry.blind",
        "telemetry.doubled",
        "telemetry.renamed",
    }


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("{any: [steps.frozen]}", "{any: [steps.frosen]}", "steps.frosen"),
        ("    commonness: 0.6", "    comonness: 0.6", "did you mean commonness?"),
        (
            "cannot: [queue.stuck, target.refused, target.silent]",
            "cannot: [steps.frozen]",
            "both must and cannot show steps.frozen",
        ),
        ("look_alikes: [engine.frozen_gauges, engine.gc_stall]", "look_alikes: [engine.tired]", "engine.tired"),
        ("on: engine", "on: motor", "motor"),
    ],
)
def test_a_mistake_in_the_catalogue_is_told_with_its_line(before: str, after: str, told: str, tmp_path: Path) -> None:
    text = DEFAULT.read_text()
    assert before in text
    path = tmp_path / "causes.yaml"
    path.write_text(text.replace(before, after, 1))
    with pytest.raises(FileError) as refused:
        load_catalogue(path)
    assert told in str(refused.value)
    assert f"{path}:" in str(refused.value)


def test_a_must_may_ask_for_a_share_of_the_members() -> None:
    form = {
        "cause": "overload",
        "on": "model",
        "says": "most engines queue",
        "commonness": 0.5,
        "must": [{"any": ["queue.growing"], "where": Way.MEMBERS, "share": 0.5}],
    }
    catalogue = Catalogue.model_validate({"causes": [form]})
    two = [finding(S.QUEUE_GROWING, engine) for engine in ENGINES[:2]]
    three = [finding(S.QUEUE_GROWING, engine) for engine in ENGINES[:3]]
    assert diagnose(window(), two, catalogue) == ()
    assert names(diagnose(window(), three, catalogue)) == [("overload", "m")]


def test_a_gpus_fault_stands_for_the_death_of_its_engine_and_the_load_on_its_peers() -> None:
    found = [
        finding(S.XID_REBOOT_NODE, GPUS[0], 1.0, ago=30.0),
        finding(S.NODE_GPUS_SHORT, NODES[0]),
        finding(S.TARGET_REFUSED, ENGINES[0], 0.9),
        finding(S.REQUESTS_FAILING, ENGINES[0]),
        finding(S.ARRIVALS_RAISED, ENGINES[1]),
        finding(S.QUEUE_GROWING, ENGINES[3]),
    ]
    first = diagnose(window(), found, CATALOGUE)[0]
    assert (first.cause, first.entity) == ("gpu.faulted", GPUS[0])
    assert ("engine.dead", "e-0") not in names(diagnose(window(), found, CATALOGUE))
    assert set(first.explains) >= {found[0], found[2], found[3], found[4]}


def test_a_held_back_gpu_stands_for_its_slow_engine() -> None:
    found = [finding(S.GPU_THROTTLED, GPUS[2]), finding(S.SLOWER_THAN_PEERS, ENGINES[2]), finding(S.TTFT_RAISED, ENGINES[2])]
    assert names(diagnose(window(), found, CATALOGUE)) == [("gpu.degraded", GPUS[2].name)]


def test_a_node_that_is_gone_stands_for_all_of_its_engines() -> None:
    dead = [finding(S.TARGET_REFUSED, engine, 0.9) for engine in ENGINES[:2]]
    assert names(diagnose(window(), [finding(S.NODE_NOT_READY, NODES[0]), *dead], CATALOGUE)) == [("node.unhealthy", "n0")]


def test_a_switch_stands_for_the_errors_of_its_nodes_and_the_slowness_of_their_engines() -> None:
    found = [finding(S.SWITCH_ERRORS, SWITCH, 0.9)]
    found += [finding(S.NODE_NETWORK_ERRORS, node, 0.9) for node in NODES[:2]]
    found += [finding(S.SLOWER_THAN_PEERS, engine) for engine in ENGINES[:4]]
    assert names(diagnose(window(), found, CATALOGUE)) == [("fabric.degraded", "s0")]


def test_what_people_do_to_a_node_is_no_incident() -> None:
    found = [finding(S.NODE_RETURNING, NODES[0], 0.3)]
    found += [finding(S.TARGET_REFUSED, engine, 0.9) for engine in ENGINES[:2]]
    assert diagnose(window(), found, CATALOGUE) == ()
    other = [finding(S.TARGET_REFUSED, ENGINES[3], 0.9)]
    assert names(diagnose(window(), [*found, *other], CATALOGUE)) == [("engine.dead", "e-3")]


def test_a_repair_excuses_what_its_node_shows() -> None:
    found = [finding(S.NODE_NOT_READY, NODES[0])]
    assert diagnose(window(), found, CATALOGUE, frozenset({GPUS[0], NODES[0]})) == ()
