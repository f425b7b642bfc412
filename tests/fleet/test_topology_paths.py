"""Paths over the map, and what the map refuses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.fleet.entity import Entity, EntityKind
from serving.fleet.topology import EngineFacts, Relation, Topology


def node(name: str) -> Entity:
    return Entity(EntityKind.NODE, name)


def zone(name: str) -> Entity:
    return Entity(EntityKind.ZONE, name)


def placed(places: list[tuple[int, int]]) -> Topology:
    """Engines e0.. on node n{i}, which stands in zone z{j}."""
    facts = [EngineFacts(f"e{k}", f"http://h:{k + 1}", "m") for k in range(len(places))]
    edges = [(Entity.engine(f"e{k}"), Relation.RUNS_ON, node(f"n{n}-{z}")) for k, (n, z) in enumerate(places)]
    edges += [(node(f"n{n}-{z}"), Relation.MEMBER_OF, zone(f"z{z}")) for n, z in sorted(set(places))]
    return Topology(facts, edges)


places = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=8)


@given(places)
def test_same_is_symmetric_and_finds_exactly_those_with_a_common_end(where: list[tuple[int, int]]) -> None:
    topology = placed(where)
    for path, same in (("runs_on", lambda a, b: a == b), ("runs_on.member_of", lambda a, b: a[1] == b[1])):
        for k, engine in enumerate(topology.engines):
            expected = {f"e{o}" for o, other in enumerate(where) if o != k and same(where[k], other)}
            assert {other.name for other in topology.same(engine, path)} == expected


@given(places)
def test_a_path_walked_backwards_returns_to_where_it_began(where: list[tuple[int, int]]) -> None:
    topology = placed(where)
    for engine in topology.engines:
        for end in topology.follow(engine, "runs_on.member_of"):
            assert engine in topology.follow(end, "~member_of.~runs_on")


def test_a_path_with_an_unknown_relation_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'runs_in' is no relation; known: runs_on"):
        placed([(0, 0)]).follow(Entity.engine("e0"), "runs_on.runs_in")


def test_a_path_from_something_that_is_not_on_the_map_leads_nowhere() -> None:
    assert placed([(0, 0)]).follow(Entity.engine("stranger"), "runs_on") == ()


def test_ancestors_come_nearest_first_and_once() -> None:
    topology = placed([(0, 1)])
    assert topology.ancestors(Entity.engine("e0")) == (node("n0-1"), zone("z1"))


def test_a_relation_between_kinds_that_it_cannot_join_is_refused() -> None:
    with pytest.raises(ValueError, match="engine/e cannot stand in runs_on to zone/z"):
        Topology([EngineFacts("e", "http://h", "m")], [(Entity.engine("e"), Relation.RUNS_ON, zone("z"))])


def test_two_engines_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="same name: e"):
        Topology([EngineFacts("e", "http://h:1", "m"), EngineFacts("e", "http://h:2", "m")])
