"""Strict YAML: one small bad text per mistake, and what is said about it."""

from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, RootModel, field_validator

from serving.yaml_file import FileError, Problem, load_text, parse_strict, read_strict


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    kind: Literal["a", "b"] = "a"
    weight: float = 1.0

    @field_validator("name")
    @classmethod
    def _not_shouted(cls, name: str) -> str:
        if name.isupper():
            raise ValueError("must not be shouted")
        return name


class Whole(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    at: str = ""
    on: bool = False
    limit: float = Field(default=1.0, gt=0)
    admin_token: str = Field(default="", max_length=3)
    max_tokens: int = Field(default=1, gt=0)
    url: str = Field(default="", max_length=3)
    parts: list[Part] = []
    by_name: dict[str, Part] = {}


class Register(RootModel[dict[str, Part]]):
    pass


def problems(text: str, model: type[BaseModel] = Whole) -> list[str]:
    with pytest.raises(FileError) as refused:
        parse_strict(text, model, "f.yaml")
    assert str(refused.value) == "\n".join(map(str, refused.value.problems))
    return [str(problem) for problem in refused.value.problems]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "f.yaml: is empty: expected `key: value` lines at the top"),
        ("- a\n- b\n", "f.yaml: is not a mapping: expected `key: value` lines at the top"),
        ("at: x\nat: y\n", "f.yaml:2: at: is given twice in one mapping"),
        ("parts:\n- name: x\n  name: y\n", "f.yaml:3: name: is given twice in one mapping"),
        ("at: [1, 2\n", "f.yaml:2: is not valid YAML: expected ',' or ']', but got '<stream end>'"),
        ("at: !!python/name:os.system x\n", "f.yaml:1: is not valid YAML: could not determine a constructor for the tag"),
        ("a: 1\n---\nb: 2\n", "f.yaml:2: is not valid YAML: but found another document"),
        ("at: \x00\n", "f.yaml:1: holds a character that YAML forbids"),
        ("limit: -1\n", "f.yaml:1: limit: input should be greater than 0 (got -1)"),
        ("limt: 2\n", "f.yaml:1: limt: is not a known key; did you mean limit? (got 2)"),
        ("parts:\n- kind: a\n", "f.yaml:2: parts[0].name: is missing"),
        ("parts:\n- name: x\n  kind: c\n", "f.yaml:3: parts[0].kind: input should be 'a' or 'b' (got 'c')"),
        (
            "parts:\n- name: x\n  colour: c\n",
            "f.yaml:3: parts[0].colour: is not a known key; known here: kind, name, weight",
        ),
        ("by_name:\n  p:\n    name: LOUD\n", "f.yaml:3: by_name.p.name: must not be shouted (got 'LOUD')"),
        ("parts: {a: 1}\n", "f.yaml:1: parts: input should be a valid list (got a mapping of 1 keys)"),
        (
            "admin_token: hunter2\n",
            "f.yaml:1: admin_token: string should have at most 3 characters (got a value that is not shown)",
        ),
        ("max_tokens: -3\n", "f.yaml:1: max_tokens: input should be greater than 0 (got -3)"),
        ("url: http://me:pw@host/\n", "(got 'http://***@host/')"),
    ],
)
def test_each_mistake_is_named_with_its_line_field_and_value(text: str, said: str) -> None:
    [only] = problems(text)
    assert said in only


def test_all_mistakes_are_reported_at_once_in_the_order_of_their_lines() -> None:
    text = "limit: 0\nparts:\n- name: x\n  weight: heavy\n- {kind: b}\nzzz: 1\n"
    lines = [problem.split(" ")[0] for problem in problems(text)]
    assert lines == ["f.yaml:1:", "f.yaml:4:", "f.yaml:5:", "f.yaml:6:"]


def test_a_file_whose_top_is_a_register_of_names_is_read_by_a_root_model() -> None:
    assert parse_strict("x: {name: y}\n", Register, "f").root["x"].name == "y"
    [only] = problems("some.name:\n  nmae: y\n  name: y\n", Register)
    assert only == "f.yaml:2: some.name.nmae: is not a known key; did you mean name? (got 'y')"


def test_scalars_follow_the_core_schema_of_yaml_1_2() -> None:
    data = load_text(
        "a: 22:30\nb: 2026-01-01\nc: no\nd: true\ne: 1e6\nf: 010\ng: .inf\nh:\ni: 0x10\nj: 12\nk: '1'\n", "f"
    ).data
    assert data == {
        "a": "22:30",
        "b": "2026-01-01",
        "c": "no",
        "d": True,
        "e": 1e6,
        "f": 10.0,
        "g": float("inf"),
        "h": None,
        "i": 16,
        "j": 12,
        "k": "1",
    }


def test_anchors_and_merge_keys_are_read_and_found_again() -> None:
    text = "by_name:\n  base: &base {name: x, weight: 2}\n  other:\n    <<: *base\n    kind: b\n"
    whole = parse_strict(text, Whole, "f")
    assert whole.by_name["other"] == Part(name="x", kind="b", weight=2)


def test_a_value_that_holds_itself_does_not_hang_the_reader() -> None:
    assert problems("parts: &p [*p]\n")


def test_a_check_beyond_the_model_can_name_the_line() -> None:
    file = load_text("parts:\n- name: x\n- name: y\n", "f.yaml")
    assert file.problem(("parts", 1, "name"), "is taken", "y") == Problem("f.yaml", 3, "parts[1].name", "is taken", "'y'")
    assert file.line(("parts", 9, "name")) == 1, "what does not exist is placed at what is around it"


def test_a_missing_unreadable_or_binary_file_is_a_file_error(tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"a: 1\nb: \xff\xfe\n")
    for name, said in [
        ("none.yaml", "there is no such file"),
        (".", "cannot be read"),
        ("binary.yaml", "is not UTF-8 text"),
    ]:
        with pytest.raises(FileError, match=said) as refused:
            read_strict(tmp_path / name, Whole)
        assert str(tmp_path) in str(refused.value)
    assert refused.value.problems[0].line == 2


@given(st.text(max_size=80))
def test_any_text_gives_a_model_or_a_file_error_and_nothing_else(text: str) -> None:
    refused: tuple[Problem, ...] = ()
    try:
        whole = parse_strict(text, Whole, "f")
    except FileError as error:
        refused, whole = error.problems, None
    assert bool(refused) != isinstance(whole, Whole)
