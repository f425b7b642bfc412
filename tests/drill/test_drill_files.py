"""Drills as files: every mistake with its place, the shipped ones whole, and out to Chaos Toolkit and back."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_fleet import HANG

from agent.cli.drill_places import known
from runbooks.chaos_toolkit import MODULE, dump_experiment, parse_experiment, to_experiment
from runbooks.drill import Drill, FleetKind
from runbooks.drill_loader import Known, load_drill, load_drills
from serving.faults.catalogue import catalogue
from serving.yaml_file import FileError

KNOWN = known()
ANYTHING = Known(KNOWN.causes, KNOWN.verbs, {})

MISTAKES = [
    ({"nmae": "x"}, "nmae: is not a known key; did you mean name?"),
    ({"faults": []}, "faults: "),
    ({"faults": [{"fault": "engine-hung"}]}, "faults[0].fault: there is no fault 'engine-hung'; did you mean engine-hang?"),
    ({"faults": [{"fault": "gc-stall", "parameters": {"pause": 1}}]}, "gc-stall has no parameter 'pause'"),
    ({"faults": [{"fault": "gc-stall", "parameters": {"pause_s": 60}}]}, "must be a number from 0.05 to 5 s"),
    ({"faults": [{"fault": "engine-hang", "target": "door"}]}, "only loads go to the front door"),
    ({"faults": [{"fault": "engine-hang", "target": "some"}]}, "faults[0].target: "),
    ({"faults": [{"fault": "engine-hang", "target": "motor/a"}]}, "faults[0].target: names no kind of entity"),
    ({"faults": [{"fault": "engine-hang", "after": 400}]}, "faults[0].after: is after the end of the watch"),
    ({"steady": {"require": ["success >= 1"]}}, "measured values are doubles: write 1.0, not 1"),
    ({"steady": {"require": ["sucess >= 0.9"]}}, "there is no 'sucess'; did you mean success?"),
    ({"steady": {"require": ['slo["success"] >= 0.9']}}, "steady.require[0]: line 1, column "),
    ({"steady": {"hold": 50, "within": 10}}, "it could never be steady"),
    ({"abort": [{"when": "failed", "because": "x"}]}, "abort[0].when: line 1, column 1: must be true or false"),
    ({"expect": {"incidents": [{"cause": "engine.hang"}]}}, "expect.incidents[0].cause: is not a known cause; did you mean"),
    ({"expect": {"incidents": [{"cause": "engine.hung", "first_action": "door.drian"}]}}, "did you mean door.drain?"),
    ({"expect": {"incidents": [{"cause": "engine.hung", "on": "modle"}]}}, "did you mean model?"),
    ({"expect": {"incidents": [{"cause": "engine.hung", "of": 3}]}}, "is no fault of this drill, which has 1"),
    ({"expect": {"incidents": [{"cause": "engine.hung", "recovered_within": 999}]}}, "limits.watch: is over before"),
    ({"fleet": {"engines": 3, "engines_at_most": 2}}, "`engines_at_most` 2 is less than `engines` 3"),
    ({"blast_radius": {"share": 2}}, "blast_radius.share: "),
]


def write(path: Path, content: object) -> Path:
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


@pytest.mark.parametrize(("change", "said"), MISTAKES, ids=[said[:40] for _, said in MISTAKES])
def test_every_mistake_is_told_with_file_line_and_field(tmp_path: Path, change: dict[str, object], said: str) -> None:
    path = write(tmp_path / "drill.yaml", {**HANG, **change})
    with pytest.raises(FileError) as refused:
        load_drill(path, KNOWN)
    assert said in str(refused.value)
    assert all(problem.file == str(path) and problem.line > 0 for problem in refused.value.problems)


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    change = {"abort": [{"when": "x", "because": ""}], "expect": {"incidents": [{"cause": "x"}]}}
    with pytest.raises(FileError) as refused:
        load_drill(write(tmp_path / "drill.yaml", {**HANG, **change}), KNOWN)
    assert len(refused.value.problems) == 2


def test_the_shipped_drills_load_tell_their_story_and_bear_the_name_of_their_file() -> None:
    drills = load_drills(KNOWN)
    assert len(drills) >= 21
    for name, loaded in drills.items():
        assert loaded.file.stem == name
        assert "https://github.com/" in loaded.drill.story
        if set(loaded.drill.fleet.kinds) != {FleetKind.VIRTUAL}:
            assert {order.fault for order in loaded.drill.faults} <= set(catalogue())
        assert loaded.drill.expect.decoy == ("decoy" in loaded.drill.tags)


def test_a_drill_of_ones_own_takes_the_place_of_a_shipped_one_and_two_of_a_name_are_refused(tmp_path: Path) -> None:
    own = {**HANG, "name": "engine-hang"}
    write(tmp_path / "a.yaml", own)
    assert load_drills(KNOWN, [tmp_path])["engine-hang"].file == tmp_path / "a.yaml"
    write(tmp_path / "b.yaml", own)
    with pytest.raises(FileError, match="is the name of the drill in"):
        load_drills(KNOWN, [tmp_path])


def test_faults_of_a_fleet_that_nobody_here_knows_are_left_to_that_fleet(tmp_path: Path) -> None:
    change = {"fleet": {"kinds": ["virtual"]}, "faults": [{"fault": "switch-degraded", "target": "any switch"}]}
    assert load_drill(write(tmp_path / "drill.yaml", {**HANG, **change}), ANYTHING).faults[0].target == "any switch"


VIRTUAL_MISTAKES = [
    ({"fault": "switch-degraded"}, "there is no fault 'switch-degraded' in virtual time"),
    ({"fault": "bad-switch"}, "happens to a switch and not to an engine; say `target: any switch`"),
    ({"fault": "bad-switch", "target": "any switch", "parameters": {"much": 1}}, "bad-switch has no parameter 'much'"),
    ({"fault": "gc-stall", "parameters": {"pause_s": 60}}, "must be a number from 0.05 to 5 s"),
]


@pytest.mark.parametrize(("order", "said"), VIRTUAL_MISTAKES, ids=[said[:30] for _, said in VIRTUAL_MISTAKES])
def test_faults_of_a_fleet_in_virtual_time_are_checked_too(tmp_path: Path, order: dict[str, object], said: str) -> None:
    change = {"fleet": {"kinds": ["virtual"]}, "faults": [order]}
    with pytest.raises(FileError) as refused:
        load_drill(write(tmp_path / "drill.yaml", {**HANG, **change}), KNOWN)
    assert said in str(refused.value)


names = st.from_regex(r"[a-z0-9]{1,8}(-[a-z0-9]{1,8}){0,2}", fullmatch=True)
spans = st.floats(0, 80_000, allow_nan=False)
words = st.text(max_size=40)
CONDITIONS = ["success >= 0.95", "requests >= 5.0 && ttft < 2.0", "!(failed > 3.0)", "elapsed < 10.0"]


@st.composite
def drills(draw: st.DrawFn) -> Drill:
    count = draw(st.integers(1, 3))
    order = st.fixed_dictionaries(
        {"fault": names, "target": st.sampled_from(["any", "busiest", "engine/sim-0", "any node", "gpu/n1:0"])},
        optional={
            "parameters": st.dictionaries(
                st.from_regex(r"[a-z][a-z0-9_]{0,9}", fullmatch=True),
                st.floats(allow_nan=False, allow_infinity=False),
                max_size=3,
            ),
            "after": st.floats(0, 100),
            "lasts": spans,
        },
    )
    incident = st.fixed_dictionaries(
        {"cause": st.sampled_from(sorted(KNOWN.causes))},
        optional={
            "of": st.integers(1, count),
            "on": st.sampled_from(["target", "model", "node"]),
            "first_action": st.sampled_from(["nothing", *sorted(KNOWN.verbs)]),
            "ending": st.sampled_from(["resolved", "escalated", "any"]),
            "isolated_within": spans,
        },
    )
    return Drill.model_validate(
        {
            "name": draw(names),
            "summary": draw(words),
            "story": draw(words),
            "tags": draw(st.lists(names, max_size=2)),
            "fleet": {"kinds": ["virtual"], "engines": draw(st.integers(1, 9))},
            "steady": {"require": draw(st.lists(st.sampled_from(CONDITIONS), max_size=3)), "hold": draw(st.floats(0, 20))},
            "faults": draw(st.lists(order, min_size=count, max_size=count)),
            "blast_radius": {"engines": draw(st.none() | st.integers(1, 9)), "share": draw(st.floats(0, 1))},
            "abort": [
                {"when": text, "because": draw(words)} for text in draw(st.lists(st.sampled_from(CONDITIONS), max_size=2))
            ],
            "expect": {
                "incidents": draw(st.lists(incident, max_size=2)),
                "tolerated": [{"cause": "clients.leaving"}] * draw(st.integers(0, 1)),
                "failed_at_most": draw(st.none() | st.integers(0, 1000)),
            },
            "limits": {"watch": draw(st.floats(400, 80_000)), "recover": draw(spans)},
        }
    )


@given(drills())
@settings(max_examples=25, deadline=None)
def test_out_to_chaos_toolkit_and_in_again_loses_nothing(drill: Drill) -> None:
    assert parse_experiment(dump_experiment(drill), "experiment", ANYTHING) == drill


def experiment(**changes: object) -> str:
    return json.dumps({**to_experiment(Drill.model_validate(HANG)), **changes}, indent=1)


def test_an_experiment_has_what_chaos_toolkit_asks_for() -> None:
    made = json.loads(experiment())
    assert {"title", "description", "method", "rollbacks", "steady-state-hypothesis"} <= set(made)
    assert [probe["tolerance"] for probe in made["steady-state-hypothesis"]["probes"]] == [True, True]
    assert made["method"][0]["provider"]["module"] == MODULE


def test_the_functions_that_an_experiment_names_take_the_arguments_it_gives() -> None:
    import inspect  # noqa: PLC0415 - only here
    from importlib import import_module  # noqa: PLC0415 - only here

    made: dict[str, Any] = json.loads(experiment())
    for activity in (*made["steady-state-hypothesis"]["probes"], *made["method"], *made["rollbacks"]):
        provider = activity["provider"]
        function = getattr(import_module(provider["module"]), provider["func"])
        inspect.signature(function).bind(**provider["arguments"])


FOREIGN = [
    (
        {"method": [{"type": "action", "name": "x", "provider": {"type": "process", "path": "kill"}}]},
        "method[0].provider.path",
    ),
    ({"method": [{"type": "action", "name": "x", "provider": {"type": "http"}}]}, "method[0]: cannot be expressed"),
    (
        {"method": [{"type": "probe", "name": "x", "provider": {"type": "python", "module": MODULE, "func": "inject"}}]},
        "method[0]",
    ),
    ({"secrets": {"k8s": {}}}, "secrets: cannot be expressed as a part of a drill"),
    ({"configuration": {"n": 1}}, "configuration: cannot be expressed"),
    ({"surprise": 1}, "surprise: is not a part of an experiment"),
    ({"extensions": []}, "extensions: holds no extension named 'fleetwarden'"),
    ({"extensions": [{"name": "fleetwarden", "expects": {}}]}, "expects: is not a known key"),
    ({"title": "Not A Name"}, "title: "),
    ({"method": {}}, "method: is not a list"),
]


@pytest.mark.parametrize(("change", "said"), FOREIGN, ids=[said[:40] for _, said in FOREIGN])
def test_what_a_drill_cannot_express_is_refused_with_its_place(change: dict[str, object], said: str) -> None:
    with pytest.raises(FileError) as refused:
        parse_experiment(experiment(**change), "experiment.json", KNOWN)
    assert said in str(refused.value)
    assert all(problem.line > 0 for problem in refused.value.problems)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"title": "x",}', '\t{"title":\t"x"}'])
def test_what_is_no_experiment_is_a_sentence(text: str) -> None:
    with pytest.raises(FileError, match=r"experiment\.json"):
        parse_experiment(text, "experiment.json", KNOWN)
