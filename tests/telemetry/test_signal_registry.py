"""The signal registry: what ships is sound, and each mistake in a file is named."""

import pytest

from serving.telemetry.prometheus import Queries
from serving.telemetry.registry import Combine, Job, Registry, SignalKind, parse_registry
from serving.yaml_file import FileError

SOUND = "x.y: {kind: gauge, unit: files, names: [a], help: h}\n"


def test_the_shipped_registry_knows_old_and_new_names_newest_first(registry: Registry) -> None:
    usage = registry.signals["engine.kv_usage"]
    assert usage.names == ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
    assert usage.until["vllm:gpu_cache_usage_perc"]
    assert registry.signals["engine.inter_token"].names[1] == "vllm:time_per_output_token_seconds"


def test_the_exposition_names_wanted_are_those_of_the_job(registry: Registry) -> None:
    engine, door = registry.wanted(Job.ENGINE), registry.wanted(Job.DOOR)
    assert {"vllm:iteration_tokens_total_count", "vllm:time_to_first_token_seconds_bucket"} <= engine
    assert "door:inflight_requests" in door
    assert not engine & door
    assert registry.wanted() == frozenset().union(*(registry.wanted(job) for job in Job))


def test_every_signal_wanted_of_an_engine_is_exposed_by_a_recorded_one(registry: Registry, exposition: str) -> None:
    exposed = {line.split("{")[0].split(" ")[0] for line in exposition.splitlines() if not line.startswith("#")}
    wanted = {name: spec for name, spec in registry.of_job(Job.ENGINE).items() if not spec.optional}
    unknown = {name for name, spec in wanted.items() if not exposed & set(spec.exposed)} - {
        "engine.rejected"
    }  # exposed only where an admission limit is set
    assert not unknown


def test_neither_a_scrape_nor_a_prometheus_is_asked_for_what_an_orchestrator_tells(registry: Registry) -> None:
    told = registry.wanted(Job.ORCHESTRATOR)
    assert "container_memory_working_set_bytes" in told
    assert not told & registry.wanted(Job.ENGINE, Job.DOOR, Job.SCRAPE)
    assert not any(name in query for name in told for query in Queries.of(registry, {}).in_order)


def test_defaults_are_an_engines_signal_combined_by_sum() -> None:
    spec = parse_registry(SOUND, "s.yaml").signals["x.y"]
    assert (spec.job, spec.combine, spec.kind) == (Job.ENGINE, Combine.SUM, SignalKind.GAUGE)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x.y: {kind: gauge, unit: u, names: [a], help: h, colour: red}", "s.yaml:1: x.y.colour: is not a known key"),
        ("x.y: {kind: meter, unit: u, names: [a], help: h}", "s.yaml:1: x.y.kind: input should be 'gauge', 'counter' or"),
        ("x.y: {kind: gauge, unit: u, names: [], help: h}", "s.yaml:1: x.y.names:"),
        ("x.y: {kind: gauge, unit: u, names: [a, a], help: h}", "s.yaml:1: x.y: `names` holds one name twice"),
        ("x.y: {kind: gauge, unit: u, names: [a b], help: h}", "x.y.names[0]: is not a name that Prometheus allows"),
        ("x.y: {kind: gauge, unit: u, names: [a]}", "s.yaml:1: x.y.help: is missing"),
        ("x.y: {kind: histogram, unit: u, combine: max, names: [a], help: h}", "a histogram can only be combined by sum"),
        ("x.y: {kind: gauge, unit: u, names: [a], help: h, where: {l: '~('}}", "x.y.where.l: is not a regular expression"),
        ("x.y: {kind: gauge, unit: u, names: [a], help: h, since: {b: '0.9'}}", "names that are not among `names`: b"),
        ("x.y: {kind: gauge, unit: u, names: [a], help: h, since: {a: 'new'}}", "is not a version"),
        (SOUND + SOUND, "s.yaml:2: x.y: is given twice"),
    ],
)
def test_a_mistake_is_named_with_file_line_signal_and_field(text: str, said: str) -> None:
    with pytest.raises(FileError) as refused:
        parse_registry(text, "s.yaml")
    assert said in str(refused.value)


def test_a_registry_cannot_be_changed(registry: Registry) -> None:
    with pytest.raises(TypeError):
        registry.signals["x"] = registry.signals["engine.steps"]  # type: ignore[index]
