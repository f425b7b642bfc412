"""When a map is made, and when the names of engines are kept."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from objects_of_a_cluster import owned_by, pod, workload

from serving.clock import FakeClock
from serving.fleet.kubernetes_entry import KubernetesEntry
from serving.kubernetes.cluster_view import LEAST_S, ClusterView
from serving.kubernetes.decoding import Decoder
from serving.kubernetes.mapping import Objects, Surroundings
from serving.kubernetes.node_notes import NodeNote

ENTRY = KubernetesEntry(selector="app=llm")
READ = Decoder.of(ENTRY)
DEPLOYMENT = owned_by("Deployment", "llm")


@dataclass
class Caches:
    """Stands in for a watch that has seen everything."""

    pods: list[str]
    changes: int = 1
    synced: bool = True

    def objects(self) -> Objects:
        seen = [READ.pod(pod(name, DEPLOYMENT)) for name in self.pods]
        wanted = READ.workload(workload("Deployment", "llm", len(self.pods)), "Deployment", "apps/v1")
        return Objects(pods={one.meta.uid: one for one in seen}, workloads={wanted.meta.uid: wanted})

    def notes(self) -> Mapping[str, NodeNote]:
        return {}

    def doubts(self) -> Mapping[str, str]:
        return {}


@dataclass
class Memory:
    """Numbers that outlive a view."""

    ours: bool = False
    kept: dict[str, int] = field(default_factory=dict)

    def load(self) -> Mapping[str, int]:
        return dict(self.kept)

    def keep(self, numbers: Mapping[str, int]) -> None:
        self.kept = dict(numbers)


def test_who_takes_over_keeps_the_names_at_once_however_new_its_map_is() -> None:
    memory = Memory()
    view = ClusterView(Caches(["llm-x", "llm-y"]), ENTRY, Surroundings(), memory, FakeClock())
    assert set(view.map().engines) == {"llm-0", "llm-1"}
    assert memory.kept == {}, "the names are for the leader to keep"
    memory.ours = True
    view.map()
    assert sorted(memory.kept.values()) == [0, 1]


def test_changes_in_quick_succession_make_one_map() -> None:
    caches, clock = Caches(["llm-x"]), FakeClock()
    view = ClusterView(caches, ENTRY, Surroundings(), Memory(), clock)
    before = view.map()
    caches.pods, caches.changes = ["llm-x", "llm-y"], 2
    assert view.map() is before
    clock.sleep(LEAST_S)
    assert set(view.map().engines) == {"llm-0", "llm-1"}
