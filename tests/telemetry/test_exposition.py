"""The exposition parser, judged by the official one, and what it refuses."""

import math
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_open_metrics
from prometheus_client.parser import text_string_to_metric_families

from serving.telemetry.exposition import ExpositionError, ExpositionParser, Samples, decode
from serving.telemetry.registry import Job, Registry

Comparable = dict[str, list[tuple[dict[str, str], str]]]


def ours(text: str, names: Iterable[str]) -> Comparable:
    return comparable(ExpositionParser(names).parse(text))


def comparable(samples: Samples) -> Comparable:
    return {name: [(dict(labels), repr(value)) for labels, value in series] for name, series in samples.items()}


def judged(text: str, names: Iterable[str]) -> Comparable:
    found: Comparable = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in set(names):
                found.setdefault(sample.name, []).append((dict(sample.labels), repr(float(sample.value))))
    return found


names = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,8}", fullmatch=True)
# The official parser refuses names that begin with two underscores, which Prometheus keeps for itself.
label_names = st.from_regex(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]{0,5}", fullmatch=True)
label_values = st.text(
    alphabet=st.one_of(st.sampled_from('\\"\n{}#,= é'), st.characters(codec="utf-8", exclude_characters="\r")), max_size=8
)
numbers = st.one_of(st.floats(), st.integers(-(10**6), 10**6), st.just(math.nan), st.just(math.inf))


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


@st.composite
def lines(draw: st.DrawFn) -> str:
    labels = draw(st.dictionaries(label_names, label_values, max_size=3))
    body = ",".join(f'{name}="{escaped(value)}"' for name, value in labels.items())
    trailing = "," if body and draw(st.booleans()) else ""
    value = draw(numbers)
    written = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}.get(str(value), repr(value))
    stamp = f" {draw(st.integers(0, 2**41))}" if draw(st.booleans()) else ""
    return f"{draw(names)}{'{' + body + trailing + '}' if body else ''} {written}{stamp}"


@given(st.lists(lines(), min_size=1, max_size=8), st.lists(names, max_size=3))
def test_any_exposition_reads_as_the_official_parser_reads_it(written: list[str], more: list[str]) -> None:
    text = "\n".join(["# HELP a about", "# TYPE a untyped", *written, ""])
    present = {line.split("{")[0].split(" ")[0] for line in written}
    wanted = {*sorted(present)[::2], *more}
    assert ours(text, wanted) == judged(text, wanted)


def test_a_recorded_answer_of_vllm_reads_as_the_official_parser_reads_it(exposition: str, registry: Registry) -> None:
    wanted = registry.wanted(Job.ENGINE)
    found = ours(exposition, wanted)
    assert found == judged(exposition, wanted)
    assert len(found["vllm:time_to_first_token_seconds_bucket"]) > 10


def test_what_the_official_client_writes_is_read_in_both_formats() -> None:
    own = CollectorRegistry()
    Gauge("g", "with {braces} # and more", ["l"], registry=own).labels('a "quoted" \\ }\n# {').set(-2.5)
    Counter("c", "counter", registry=own).inc(3, exemplar={"trace_id": "x} 5 # {"})
    Histogram("h", "histogram", buckets=(0.1, 1), registry=own).observe(0.5, exemplar={"trace_id": "abc"})
    wanted = {"g", "c_total", "h_bucket", "h_sum"}
    plain = ExpositionParser(wanted).parse(decode(generate_latest(own)))
    open_metrics = ExpositionParser(wanted).parse(decode(generate_open_metrics(own)), open_metrics=True)
    assert comparable(plain) == comparable(open_metrics) == judged(generate_latest(own).decode(), wanted)
    assert plain["c_total"] == [({}, 3.0)]
    assert [labels["le"] for labels, _ in plain["h_bucket"]] == ["0.1", "1.0", "+Inf"]


@pytest.mark.parametrize(
    "line",
    [
        "a 1",
        "a  1",
        "a\t1",
        " a 1",
        "a{} 1",
        "a{ } 1",
        "a {} 1",
        "a{} 1 ",
        "a 1 123",
        "a{}1",
        "a 1\r",
        "a 1 # {} 1",
        "a 1e0",
        'a 1 # {t="x"} 0.5 1.5',
    ],
)
def test_every_way_to_write_one_sample_gives_that_sample(line: str) -> None:
    assert ExpositionParser({"a"}).parse(line + "\n") == {"a": [({}, 1.0)]}


def test_a_name_that_only_begins_like_a_wanted_one_is_not_taken() -> None:
    text = 'ab 1\na_total 2\na{l="a 3"} 4\n#a 5\n'
    assert ExpositionParser({"a"}).parse(text) == {"a": [({"l": "a 3"}, 4.0)]}
    assert ExpositionParser(()).parse(text) == {}


@pytest.mark.parametrize(
    "line", ["a one", "a{l=} 1", 'a{l="x} 1', 'a{l="x"', "a{l='x'} 1", "a 1 now", 'a{="x"} 1', 'a{l="x"} 1 2 3', "a{}"]
)
def test_a_wanted_line_that_cannot_be_read_spoils_the_answer_and_is_shown(line: str) -> None:
    with pytest.raises(ExpositionError, match="line 2 of the answer cannot be read"):
        ExpositionParser({"a"}).parse(f"b 1\n{line}\n")


def test_a_broken_line_of_a_name_that_is_not_wanted_costs_nothing() -> None:
    assert ExpositionParser({"a"}).parse("b{{{ one\na 1\n") == {"a": [({}, 1.0)]}


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "is empty"),
        (b" \n\t", "is empty"),
        (b"a 1\n\0\0", "is binary"),
        (b"\x89PNG\r\n\x1a\n\xff", "is not UTF-8"),
        (b"<!DOCTYPE html><html>login</html>", "is HTML"),
    ],
)
def test_bytes_that_are_no_text_of_metrics_are_refused_with_the_reason(raw: bytes, said: str) -> None:
    with pytest.raises(ExpositionError, match=said):
        decode(raw)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Not found.\n", "has no line of metrics"),
        ('{"status":"ok"}\n', "has no line of metrics"),
        ("a 1\na 2", "cut off in its last line"),
    ],
)
def test_text_that_is_no_whole_exposition_is_refused_with_the_reason(text: str, said: str) -> None:
    with pytest.raises(ExpositionError, match=said):
        ExpositionParser({"a"}).parse(text)


def test_open_metrics_without_its_end_was_cut_off() -> None:
    with pytest.raises(ExpositionError, match="before its # EOF"):
        ExpositionParser({"a"}).parse("a 1\n", open_metrics=True)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused_and_nothing_else(raw: bytes) -> None:
    parser = ExpositionParser({"a", "ab", "b:c"})
    try:
        samples = parser.parse(decode(b"a" + raw))
    except ExpositionError as refused:
        samples = {"why": [({}, float(len(str(refused))))]}
    assert all(isinstance(value, float) for series in samples.values() for _, value in series)


def test_remembered_labels_do_not_grow_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.telemetry.exposition._REMEMBERED", 10)
    parser = ExpositionParser({"a"})
    text = "".join(f'a{{l="{number}"}} {number}\n' for number in range(100))
    assert len(parser.parse(text)["a"]) == 100
    assert len(parser._known) <= 10
