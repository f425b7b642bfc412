"""The fleet file: what it says is what the map shows, and what is wrong with it is said in full."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from serving.fleet.entity import Entity, EntityKind
from serving.fleet.fleet_file import (
    EngineEntry,
    FleetFile,
    GatewayEntry,
    ModelEntry,
    NodeEntry,
    OtlpEntry,
    PrometheusEntry,
    RankGroup,
    ScrapeEntry,
    SwitchEntry,
    TelemetryEntry,
    json_schema,
)
from serving.fleet.relations import OTLP, PROMETHEUS, SCRAPE
from serving.fleet.topology import SIGNATURES, Relation, Topology
from serving.yaml_file import FileError

EXAMPLE = Path(__file__).parents[2] / "deploy" / "examples" / "fleet.yaml"

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,11}", fullmatch=True)


@st.composite
def fleets(draw: st.DrawFn) -> FleetFile:
    zones = draw(st.lists(names, max_size=3, unique=True))
    some_zone = st.none() if not zones else st.one_of(st.none(), st.sampled_from(zones))
    switches = [SwitchEntry(name=n, zone=draw(some_zone)) for n in draw(st.lists(names, max_size=2, unique=True))]
    some_switch = st.none() if not switches else st.one_of(st.none(), st.sampled_from([s.name for s in switches]))
    nodes = [
        NodeEntry(name=n, zone=draw(some_zone), switch=draw(some_switch))
        for n in draw(st.lists(names, max_size=4, unique=True))
    ]
    some_node = st.none() if not nodes else st.one_of(st.none(), st.sampled_from([n.name for n in nodes]))
    engines = [
        EngineEntry(
            name=name,
            url=f"http://10.0.0.{number}:8000",
            model=draw(st.sampled_from(["sim", "org/large"])),
            node=draw(some_node),
            hardware=draw(st.sampled_from(["H100", "B200"])),
            role=draw(st.sampled_from(["serve", "prefill"])),
            group=draw(st.one_of(st.none(), st.builds(RankGroup, tp=st.integers(1, 3), pp=st.integers(1, 2)))),
        )
        for number, name in enumerate(draw(st.lists(names, min_size=1, max_size=6, unique=True)))
    ]
    served = sorted({engine.model for engine in engines})
    models = [
        draw(
            st.one_of(
                st.builds(ModelEntry, name=st.just(m), min_healthy=st.integers(0, sum(e.model == m for e in engines))),
                st.builds(ModelEntry, name=st.just(m), min_healthy_fraction=st.floats(0, 1)),
            )
        )
        for m in served
    ]
    telemetry = TelemetryEntry(
        scrape=ScrapeEntry(timeout=draw(st.floats(0.1, 60))),
        prometheus=draw(
            st.one_of(st.none(), st.just(PrometheusEntry(url="http://prometheus:9090", match={"cluster": "x"})))
        ),
        otlp=draw(st.one_of(st.none(), st.builds(OtlpEntry, port=st.integers(0, 65_535)))),
    )
    gateway = draw(
        st.one_of(st.none(), st.just(GatewayEntry(name="door", url="http://door:80", admin_url="http://door:81")))
    )
    return FleetFile(
        fleet=draw(names),
        zones=zones,
        switches=switches,
        nodes=nodes,
        engines=engines,
        models=draw(st.sampled_from([[], models])),
        gateway=gateway,
        telemetry=telemetry,
    )


@settings(max_examples=50)
@given(fleets())
def test_a_written_fleet_reads_back_as_it_was(fleet: FleetFile) -> None:
    assert FleetFile.parse(fleet.to_yaml()) == fleet


@settings(max_examples=50)
@given(fleets())
def test_peers_are_symmetric_and_alike(fleet: FleetFile) -> None:
    topology = fleet.topology()
    for engine in topology.engines:
        assert engine not in topology.peers(engine)
        for peer in topology.peers(engine):
            assert engine in topology.peers(peer)
            mine, theirs = topology.facts(engine), topology.facts(peer)
            assert (mine.model, mine.hardware, mine.role) == (theirs.model, theirs.hardware, theirs.role)


@settings(max_examples=50)
@given(fleets())
def test_every_relation_joins_kinds_that_it_may_join(fleet: FleetFile) -> None:
    for subject, other, relation in fleet.topology().graph.edges(keys=True):
        assert (subject.kind, other.kind) in SIGNATURES[relation]


@settings(max_examples=50)
@given(fleets())
def test_each_engine_is_on_the_map_with_its_node_model_door_and_sources(fleet: FleetFile) -> None:
    topology = fleet.topology()
    assert [engine.name for engine in topology.engines] == [entry.name for entry in fleet.engines]
    for entry, engine in zip(fleet.engines, topology.engines, strict=True):
        nodes = [entity.name for entity in topology.related(engine, Relation.RUNS_ON)]
        assert nodes == ([entry.node] if entry.node else [])
        assert topology.related(engine, Relation.SERVES) == (Entity(EntityKind.MODEL, entry.model),)
        assert bool(topology.inverse(engine, Relation.ROUTES_TO)) == (fleet.gateway is not None)
        assert SCRAPE in topology.related(engine, Relation.SCRAPED_BY)
        assert (PROMETHEUS in topology.related(engine, Relation.SCRAPED_BY)) == (fleet.telemetry.prometheus is not None)
        assert (OTLP in topology.related(engine, Relation.SCRAPED_BY)) == (fleet.telemetry.otlp is not None)


@pytest.mark.parametrize("name", ["1e5", "12", "0x1F", "true", "null", "2026-01-01", "1.5", "22:30"])
def test_names_that_look_like_other_things_stay_names(name: str) -> None:
    fleet = FleetFile(fleet=name, zones=[name], engines=[EngineEntry(name=name, url="http://h", model=name)])
    assert FleetFile.parse(fleet.to_yaml()) == fleet


def test_a_dumped_file_is_whole_and_reads_back(tmp_path: Path) -> None:
    fleet = FleetFile.read(EXAMPLE)
    path = tmp_path / "deep" / "fleet.yaml"
    fleet.dump(path)
    assert FleetFile.read(path) == fleet
    assert path.read_text().startswith("# A map of a serving fleet")
    assert [file.name for file in path.parent.iterdir()] == ["fleet.yaml"]


def test_a_file_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, not a directory")
    with pytest.raises(FileError, match="cannot be written"):
        FleetFile.read(EXAMPLE).dump(tmp_path / "taken" / "fleet.yaml")


def test_the_example_places_each_engine_under_node_zone_switch_and_cell() -> None:
    topology = FleetFile.read(EXAMPLE).topology()
    assert [str(entity) for entity in topology.ancestors(Entity.engine("small-0"))] == [
        "node/node-1",
        "zone/a",
        "switch/leaf-1",
        "cell/eu-1",
    ]
    ranks = topology.inverse(Entity.engine("large-0"), Relation.MEMBER_OF)
    on = [topology.related(rank, Relation.RUNS_ON)[0].name for rank in ranks]
    assert on == ["node-3"] * 4 + ["node-4"] * 4


def test_secret_files_are_looked_for_beside_the_fleet_file(tmp_path: Path) -> None:
    text = "fleet: f\nengines: [{name: e, url: 'http://h:1', model: m}]\n"
    gateway = "gateway: {name: door, url: 'http://d:1', admin_url: 'http://d:2', admin_token_file: secrets/token}\n"
    (tmp_path / "fleet.yaml").write_text(text + gateway)
    read = FleetFile.read(tmp_path / "fleet.yaml")
    assert read.gateway is not None
    assert read.gateway.admin_token_file == tmp_path / "secrets" / "token"


def test_engines_without_labels_are_looked_for_by_instance_only_where_prometheus_is_read() -> None:
    topology = FleetFile.read(EXAMPLE).topology()
    assert topology.facts(Entity.engine("small-0")).labels == {"instance": "10.0.1.1:8000"}
    assert topology.facts(Entity.engine("large-0")).labels == {"pod": "large-0-leader"}
    plain = FleetFile(fleet="f", engines=[EngineEntry(name="e", url="https://h", model="m")])
    assert plain.topology().facts(Entity.engine("e")).labels == {}


@pytest.mark.parametrize(
    ("minimum", "engines", "needed"),
    [({}, 4, 2), ({}, 1, 1), ({}, 3, 2), ({"min_healthy": 3}, 4, 3), ({"min_healthy": 0}, 4, 0)]
    + [
        ({"min_healthy_fraction": f}, n, k)
        for f, n, k in ((0.0, 5, 0), (1.0, 5, 5), (0.7, 10, 7), (0.75, 4, 3), (0.1, 3, 1))
    ],
)
def test_a_serving_budget_says_how_many_engines_are_needed(minimum: dict[str, float], engines: int, needed: int) -> None:
    assert ModelEntry(name="m", **minimum).needed(engines) == needed


HEAD = "fleet: f\n"
ENGINE = "engines:\n  - {name: e0, url: 'http://h:1', model: m}\n"

BAD = {
    "two engines of one name": (
        HEAD + ENGINE + "  - {name: e0, url: 'http://h:2', model: m}\n",
        4,
        "engines[1].name",
        "already the name",
    ),
    "two engines on one url": (
        HEAD + ENGINE + "  - {name: e1, url: 'http://H:1/', model: m}\n",
        4,
        "engines[1].url",
        "address of e0",
    ),
    "an unknown node": (
        HEAD + ENGINE + "  - name: e1\n    url: http://h:2\n    model: m\n    node: n9\n",
        7,
        "engines[1].node",
        "not among",
    ),
    "a url without scheme": (HEAD + ENGINE + "  - {name: e1, url: 'h:2', model: m}\n", 4, "engines[1].url", "http://"),
    "a url without host": (HEAD + ENGINE + "  - {name: e1, url: 'http://', model: m}\n", 4, "engines[1].url", "no host"),
    "a url with a bad port": (
        HEAD + ENGINE + "  - {name: e1, url: 'http://h:99999', model: m}\n",
        4,
        "engines[1].url",
        "ort",
    ),
    "a url with a password": (
        HEAD + ENGINE + "  - {name: e1, url: 'http://u:hunter2@h', model: m}\n",
        4,
        "engines[1].url",
        "password",
    ),
    "a url with a query": (
        HEAD + ENGINE + "  - {name: e1, url: 'http://h:2?a=b', model: m}\n",
        4,
        "engines[1].url",
        "query",
    ),
    "an unknown key": (
        HEAD + ENGINE + "  - {name: e1, url: 'http://h:2', model: m, modle: x}\n",
        4,
        "engines[1].modle",
        "did you mean model",
    ),
    "a budget above the engines": (
        HEAD + ENGINE + "models:\n  - {name: m, min_healthy: 2}\n",
        5,
        "models[0].min_healthy",
        "more than the 1",
    ),
    "two minimums": (
        HEAD + ENGINE + "models:\n  - {name: m, min_healthy: 1, min_healthy_fraction: 0.5}\n",
        5,
        "models[0]",
        "keep one of them",
    ),
    "a budget of a model nobody serves": (HEAD + ENGINE + "models:\n  - {name: q}\n", 5, "models[0].name", "known: m"),
    "an unknown zone of a node": (
        HEAD + ENGINE + "nodes:\n  - {name: n, zone: z}\n",
        5,
        "nodes[0].zone",
        "`zones` lists none",
    ),
    "an unknown switch": (
        HEAD + ENGINE + "nodes:\n  - {name: n, switch: s}\n",
        5,
        "nodes[0].switch",
        "`switches` lists none",
    ),
    "a zone given twice": (HEAD + "zones: [a, a]\n" + ENGINE, 2, "zones[1]", "names must differ"),
    "ranks that cannot be spread": (
        HEAD + "nodes: [{name: a}, {name: b}]\nengines:\n"
        "  - {name: e, url: 'http://h', model: m, group: {tp: 3, nodes: [a, b]}}\n",
        4,
        "engines[0].group.nodes",
        "evenly",
    ),
    "fewer gpus than ranks": (
        HEAD + "engines:\n  - {name: e, url: 'http://h', model: m, gpus: 2, group: {tp: 4}}\n",
        3,
        "engines[0].gpus",
        "4 ranks",
    ),
    "the door on an engine's url": (
        HEAD + ENGINE + "gateway: {name: d, url: 'http://h:1'}\n",
        4,
        "gateway.url",
        "engine e0",
    ),
    "the admin routes on the data url": (
        HEAD + ENGINE + "gateway: {name: d, url: 'http://d:1', admin_url: 'http://d:1'}\n",
        4,
        "gateway.admin_url",
        "listener of their own",
    ),
    "a token nobody uses": (
        HEAD + ENGINE + "gateway: {name: d, url: 'http://d:1', admin_token_file: t}\n",
        4,
        "gateway.admin_token_file",
        "without `admin_url`",
    ),
    "a timeout of nothing": (
        HEAD + ENGINE + "telemetry:\n  scrape:\n    timeout: 0\n",
        6,
        "telemetry.scrape.timeout",
        "greater than 0",
    ),
    "no telemetry at all": (HEAD + ENGINE + "telemetry: {scrape: null}\n", 4, "telemetry", "would see nothing"),
    "engines beside a cluster": (
        HEAD + ENGINE + "kubernetes: {selector: app=llm}\n",
        2,
        "engines",
        "leave out one of the two",
    ),
    "a selector that is none": (
        "fleet: f\nkubernetes: {selector: 'app in llm'}\n",
        2,
        "kubernetes.selector",
        "'app in llm' is none of",
    ),
    "a namespace that cannot be": (
        "fleet: f\nkubernetes: {selector: app, namespaces: [Prod]}\n",
        2,
        "kubernetes.namespaces[0]",
        "match pattern",
    ),
    "a cluster without any measurements": (
        "fleet: f\nkubernetes: {selector: app}\ntelemetry: {scrape: null}\n",
        3,
        "telemetry",
        "would see nothing",
    ),
    "no engines": (HEAD + "engines: []\n", 2, "engines", "or say with `kubernetes`"),
}


@pytest.mark.parametrize("mistake", BAD)
def test_a_mistake_is_named_with_file_line_and_field(mistake: str) -> None:
    text, line, field, what = BAD[mistake]
    with pytest.raises(FileError) as refused:
        FleetFile.parse(text, "some/fleet.yaml")
    (problem,) = refused.value.problems
    assert (problem.file, problem.line, problem.field) == ("some/fleet.yaml", line, field)
    assert what in str(problem)
    assert "hunter2" not in str(problem)


def test_all_disagreements_of_a_file_are_reported_at_once() -> None:
    text = (
        "fleet: f\nzones: [a, a]\nengines:\n"
        "  - {name: e0, url: 'http://h:1', model: m, node: nowhere}\n"
        "  - {name: e0, url: 'http://h:1', model: m}\n"
        "models:\n  - {name: m, min_healthy: 9}\n"
    )
    with pytest.raises(FileError) as refused:
        FleetFile.parse(text)
    fields = [problem.field for problem in refused.value.problems]
    assert fields == ["zones[1]", "engines[0].node", "engines[1].name", "engines[1].url", "models[0].min_healthy"]


def test_a_fleet_made_in_code_is_checked_as_well() -> None:
    engine = EngineEntry(name="e", url="http://h", model="m", node="nowhere")
    with pytest.raises(ValidationError, match="nodes"):
        FleetFile(fleet="f", engines=[engine])


def test_the_json_schema_knows_every_section_and_refuses_unknown_keys() -> None:
    schema = json_schema()
    assert set(schema["properties"]) == set(FleetFile.model_fields)
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize(
    "selector", ["app", "app=llm", "app==llm,tier!=lab", "!lab", "app in (a, b),stage notin (lab)", "example.com/app=llm"]
)
def test_a_fleet_in_a_cluster_is_declared_by_a_selector_and_nothing_else(selector: str) -> None:
    fleet = FleetFile.parse(f"fleet: f\nkubernetes: {{selector: '{selector}'}}\n")
    assert not fleet.topology().engines, "only the cluster knows them"
    assert FleetFile.parse(fleet.to_yaml()) == fleet


def test_budgets_of_models_that_only_the_cluster_knows_are_taken_as_they_are() -> None:
    fleet = FleetFile.parse("fleet: f\nkubernetes: {selector: app}\nmodels: [{name: m, min_healthy: 4}]\n")
    assert fleet.budget("m").needed(100) == 4


def test_a_kubeconfig_is_looked_for_beside_the_fleet_file(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text("fleet: f\nkubernetes: {selector: app, kubeconfig: cluster.yaml}\n")
    cluster = FleetFile.read(tmp_path / "fleet.yaml").kubernetes
    assert cluster is not None
    assert cluster.kubeconfig == tmp_path / "cluster.yaml"


def test_a_fleet_without_nodes_or_door_is_a_fleet() -> None:
    fleet = FleetFile.parse(HEAD + ENGINE)
    assert isinstance(fleet.topology(), Topology)
    assert fleet.min_healthy("m") == 1
