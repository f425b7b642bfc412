"""From the objects of a cluster to the map of a fleet."""

from collections.abc import Iterable
from typing import Any

from objects_of_a_cluster import container, meta, node, owned_by, pod, workload

from serving.fleet.entity import Entity, EntityKind
from serving.fleet.kubernetes_entry import KubernetesEntry
from serving.fleet.topology import Relation
from serving.kubernetes.decoding import Decoder, meta_of
from serving.kubernetes.mapping import Mapped, Objects, Surroundings, mapped
from serving.kubernetes.objects import WorkloadObject

LWS = "leaderworkerset.sigs.k8s.io"
Json = dict[str, Any]
NOWHERE = Surroundings()


def build(
    pods: Iterable[Json] = (),
    nodes: Iterable[Json] = (),
    workloads: Iterable[tuple[str, Json]] = (),
    replica_sets: Iterable[Json] = (),
    namespaces: Iterable[Json] = (),
    remembered: dict[str, int] | None = None,
    around: Surroundings = NOWHERE,
    **entry: Any,
) -> Mapped:
    told = KubernetesEntry.model_validate({"selector": "app=llm", **entry})
    read = Decoder.of(told)
    known: list[WorkloadObject] = [read.workload(json, kind, "apps/v1") for kind, json in workloads]
    sets = [read.workload(json, "ReplicaSet", "apps/v1") for json in replica_sets]
    objects = Objects(
        nodes={one.meta.uid: one for one in map(read.node, nodes)},
        pods={one.meta.uid: one for one in map(read.pod, pods)},
        replica_sets={one.meta.uid: one for one in sets},
        workloads={one.meta.uid: one for one in known},
        namespaces={one.name: one for one in map(meta_of, namespaces)},
    )
    return mapped(objects, told, around, remembered or {}, 100.0)


def replica_set(name: str, deployment: str) -> Json:
    return {
        "metadata": {**meta(name, ownerReferences=owned_by("Deployment", deployment)), "uid": f"ReplicaSet:serving/{name}"}
    }


def of_deployment(name: str, **more: Any) -> Json:
    return pod(name, owned_by("ReplicaSet", "llama-77"), **more)


def test_pods_of_a_deployment_are_slots_and_know_their_deployment() -> None:
    made = build(
        [of_deployment("llama-77-xyz", ip="10.0.0.7"), of_deployment("llama-77-abc", created="2026-10-05T09:00:00Z")],
        [node("node-a")],
        [("Deployment", workload("Deployment", "llama", 2))],
        [replica_set("llama-77", "llama")],
    )
    assert [engine.name for engine in made.map.topology.engines] == ["llama-0", "llama-1"]
    first = made.map.engines["llama-0"]
    assert (first.name, first.node, first.gpus, first.ready) == ("llama-77-xyz", "node-a", 1, True)
    assert first.owner is not None
    assert (first.owner.kind, first.owner.name) == ("Deployment", "llama")
    facts = made.map.topology.facts(Entity.engine("llama-0"))
    assert (facts.url, facts.model) == ("http://10.0.0.7:8000", "llama")
    [kept] = made.map.workloads["llama"]
    assert (kept.owner_kind, kept.name, kept.replicas) == ("Deployment", "llama", 2)
    assert made.map.engine_of["serving", "llama-77-xyz"] == "llama-0"


def test_an_engine_outlives_its_pod() -> None:
    sets, deployment = [replica_set("llama-77", "llama")], [("Deployment", workload("Deployment", "llama", 2))]
    before = build([of_deployment("a"), of_deployment("b")], [], deployment, sets)
    held = before.roster.numbers
    gone = build([of_deployment("b")], [], deployment, sets, remembered=dict(held))
    assert [engine.name for engine in gone.map.topology.engines] == ["llama-0", "llama-1"]
    assert gone.map.pod("llama-0") is None
    facts = gone.map.topology.facts(Entity.engine("llama-0"))
    assert (facts.url, facts.model) == ("", "llama"), "its workload still tells the model"
    back = build([of_deployment("b"), of_deployment("c")], [], deployment, sets, remembered=dict(gone.roster.numbers))
    assert {name: ref.name for name, ref in back.map.engines.items()} == {"llama-0": "c", "llama-1": "b"}


def test_failed_pods_are_no_engines() -> None:
    made = build([of_deployment("a", phase="Failed")], replica_sets=[replica_set("llama-77", "llama")])
    assert not made.map.topology.engines


def test_pods_of_a_stateful_set_keep_their_names_and_missing_ones_are_on_the_map() -> None:
    owner = owned_by("StatefulSet", "big")
    made = build([pod("big-1", owner), pod("big-10", owner)], workloads=[("StatefulSet", workload("StatefulSet", "big", 3))])
    assert [engine.name for engine in made.map.topology.engines] == ["big-0", "big-1", "big-2", "big-10"]
    assert set(made.map.engines) == {"big-1", "big-10"}


def test_a_workload_of_others_is_not_the_fleet() -> None:
    other = workload("StatefulSet", "database", 3)
    other["spec"]["template"]["metadata"]["labels"] = {"app": "database"}
    assert not build(workloads=[("StatefulSet", other)]).map.topology.engines


def test_a_group_is_one_engine_with_its_workers() -> None:
    def member(name: str, index: int, on: str) -> Json:
        labels = {f"{LWS}/name": "huge", f"{LWS}/group-index": "0", f"{LWS}/worker-index": str(index)}
        args = container("--model=big", "--tensor-parallel-size=8", "-pp=2", gpus=8)
        return pod(name, owned_by("StatefulSet", "huge"), labels=labels, node=on, containers=[args])

    sets = workload("StatefulSet", "huge", 1, owner=owned_by("LeaderWorkerSet", "huge", f"{LWS}/v1"))
    made = build(
        [member("huge-0", 0, "node-a"), member("huge-0-1", 1, "node-b")],
        [node("node-a"), node("node-b")],
        [("StatefulSet", sets)],
    )
    assert [engine.name for engine in made.map.topology.engines] == ["huge-0"]
    lead = made.map.engines["huge-0"]
    assert [worker.name for worker in lead.workers] == ["huge-0-1"]
    assert lead.owner is not None
    assert lead.owner.kind == "LeaderWorkerSet"
    assert made.map.on_node("node-b") == ("huge-0",)
    last = Entity(EntityKind.RANK, "huge-0:15")
    assert made.map.topology.related(last, Relation.RUNS_ON) == (Entity(EntityKind.NODE, "node-b"),)


def test_pods_of_a_controller_that_nobody_knows_are_slots_of_it() -> None:
    owner = owned_by("InferencePool", "pool", "example.com/v1")
    made = build([pod("pool-x7", owner), pod("pool-q2", owner)])
    assert [engine.name for engine in made.map.topology.engines] == ["pool-0", "pool-1"]
    assert made.map.workloads["llama"][0].replicas is None


def test_a_pod_that_nobody_owns_is_called_by_its_name() -> None:
    assert [engine.name for engine in build([pod("alone")]).map.topology.engines] == ["alone"]


def test_one_name_in_two_namespaces_is_told_apart() -> None:
    made = build([pod("llm-0"), pod("llm-0", namespace="test")])
    assert [engine.name for engine in made.map.topology.engines] == ["llm-0", "llm-0.test"]


def test_places_come_from_labels_of_nodes() -> None:
    labels = {
        "topology.kubernetes.io/zone": "zone-1",
        "network.topology.nvidia.com/leaf": "leaf-4",
        "nvidia.com/gpu.clique": "abc.7",
        "rack": "r12",
        "nvidia.com/gpu.product": "NVIDIA-H200",
    }
    made = build([pod("one")], [node("node-a", labels=labels)], rack_labels=["rack"])
    above = {str(entity) for entity in made.map.topology.ancestors(Entity.engine("one"))}
    switches = {"switch/switch:leaf-4", "switch/rack:r12", "switch/nvlink:abc.7"}
    assert above == {"node/node-a", "zone/zone-1", "cell/local"} | switches
    assert made.map.topology.facts(Entity.engine("one")).hardware == "NVIDIA-H200"


def test_nodes_without_gpus_are_there_only_when_an_engine_is_on_them() -> None:
    made = build([pod("one", node="plain")], [node("plain", gpus=0), node("other", gpus=0), node("gpu")])
    assert made.map.nodes == ("gpu", "plain")


def test_what_opted_out_is_told_with_all_that_it_holds() -> None:
    mark = {"fleetwarden.dev/opt-out": "true"}
    marked = workload("StatefulSet", "kept", 1)
    marked["metadata"]["annotations"] = mark
    held = node("node-b")
    held["metadata"]["labels"] = mark
    made = build(
        [
            pod("kept-0", owned_by("StatefulSet", "kept")),
            pod("own", annotations=mark),
            pod("far", namespace="lab"),
            pod("free"),
        ],
        [held],
        [("StatefulSet", marked)],
        namespaces=[{"metadata": {"name": "lab", "annotations": mark}}, {"metadata": {"name": "serving"}}],
    )
    assert {str(entity) for entity in made.map.opted_out} == {"node/node-b", "engine/kept-0", "engine/own", "engine/far"}


def test_the_model_may_be_told_by_a_label_and_so_may_the_role() -> None:
    labels = {"model": "llama-70b", "llm-d.ai/role": "prefill"}
    facts = build([pod("one", labels=labels)], model_label="model").map.topology.facts(Entity.engine("one"))
    assert (facts.model, facts.role) == ("llama-70b", "prefill")


def test_the_front_door_and_the_sources_stand_around_every_engine() -> None:
    source = Entity(EntityKind.TELEMETRY, "scrape")
    around = Surroundings("east", "door", (source,), (source,))
    made = build([pod("one")], around=around).map.topology
    assert made.related(Entity(EntityKind.GATEWAY, "door"), Relation.ROUTES_TO) == (Entity.engine("one"),)
    assert made.related(Entity.engine("one"), Relation.SCRAPED_BY) == (source,)
    assert made.facts(Entity.engine("one")).labels == {"namespace": "serving", "pod": "one"}


def test_an_address_of_ipv6_is_written_in_brackets() -> None:
    facts = build([pod("one", ip="fd00::7")], port=9000).map.topology.facts(Entity.engine("one"))
    assert facts.url == "http://[fd00::7]:9000"
