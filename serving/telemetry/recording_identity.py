"""The labels by which a recording names the engine that a series is about; a replay makes its map of them."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from serving.fleet.entity import Entity
from serving.fleet.topology import Relation, Topology

ENGINE_JOB, DOOR_JOB = "vllm", "door"


def identity_of(topology: Topology, engine: Entity) -> Mapping[str, str]:
    """`replica`, `model`, `instance`, `job`, and `node` where the map knows it."""
    facts = topology.facts(engine)
    labels = {
        "replica": engine.name,
        "model": facts.model,
        "instance": urlsplit(facts.url).netloc or engine.name,
        "job": ENGINE_JOB,
    }
    nodes = topology.related(engine, Relation.RUNS_ON)
    return labels | ({"node": nodes[0].name} if nodes else {})
