"""Strict YAML files: every mistake of a file at once, each with its file, line, field and value.

The dialect is the core schema of YAML 1.2: only `true` and `false` are booleans, `22:30` and `2026-01-01` stay text
(PyYAML alone would read them as 1350 and as a date), `1e6` is a number. Keys may not be given twice. What the keys mean
is said by a pydantic model; models at the edge forbid unknown keys (`extra="forbid"`). Values that may be secrets are
never repeated in a message.
"""

import difflib
import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError

M = TypeVar("M", bound=BaseModel)
Location = Sequence[str | int]

_SECRET_NAME = re.compile(r"token|secret|passw|credential|api_?key|authorization|webhook", re.IGNORECASE)
_COUNTED_TOKENS = re.compile(r"tokens", re.IGNORECASE)
_URL_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_VALUE_SHOWN = 80


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One mistake in a file. `line` counts from 1 and is 0 where no line is to blame; `value` is how it was written."""

    file: str
    line: int
    field: str
    what: str
    value: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        subject = f" {self.field}:" if self.field else ""
        got = f" (got {self.value})" if self.value else ""
        return f"{place}:{subject} {self.what}{got}"


class FileError(ValueError):
    """A file that cannot be used. `problems` are all its mistakes, in the order of their lines."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(sorted(set(problems)))
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(frozen=True, slots=True, eq=False)
class YamlFile:
    """A parsed file that remembers its lines, for checks that go beyond what a model can say."""

    name: str
    data: dict[Any, Any]
    root: yaml.MappingNode

    def line(self, location: Location) -> int:
        """The line of the key or list item at `location`, or of the nearest one around it that exists."""
        return _line_of(self.root, location)

    def problem(self, location: Location, what: str, value: object = None) -> Problem:
        """A problem at `location`, as in `file.problem(("engines", 2, "url"), "is not a URL", url)`."""
        shown = "" if value is None else _shown(location, value)
        return Problem(self.name, self.line(location), _dotted(location), what, shown)

    def validated(self, model: type[M]) -> M:
        """The file as a `model`. Raises FileError with every mistake."""
        try:
            return model.model_validate(self.data)
        except ValidationError as refused:
            raise FileError([_problem_of(self, model, error) for error in refused.errors()]) from None


def read_strict(path: Path, model: type[M]) -> M:
    """Read the YAML file at `path` as a `model`. Raises FileError with every mistake, an unreadable file included."""
    return load_file(path).validated(model)


def parse_strict(text: str, model: type[M], name: str) -> M:
    """Read YAML `text`, called `name` in messages, as a `model`. Raises FileError with every mistake."""
    return load_text(text, name).validated(model)


def load_file(path: Path) -> YamlFile:
    """Read the YAML file at `path`, whose top is a mapping. Raises FileError."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise FileError([Problem(str(path), 0, "", "there is no such file")]) from None
    except OSError as refused:
        raise FileError([Problem(str(path), 0, "", f"cannot be read: {refused.strerror}")]) from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as refused:
        line = raw.count(b"\n", 0, refused.start) + 1
        raise FileError([Problem(str(path), line, "", "is not UTF-8 text")]) from None
    return load_text(text, str(path))


def load_text(text: str, name: str) -> YamlFile:
    """Read YAML `text`, whose top is a mapping. Raises FileError."""
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        if not isinstance(root, yaml.MappingNode):
            what = "is empty" if root is None else "is not a mapping"
            raise FileError([Problem(name, 0, "", f"{what}: expected `key: value` lines at the top")])
        twice = [Problem(name, line, key, "is given twice in one mapping") for line, key in _duplicates(root)]
        if twice:
            raise FileError(twice)
        return YamlFile(name, loader.construct_document(root), root)
    except yaml.MarkedYAMLError as refused:
        raise FileError([_syntax_problem(name, refused)]) from None
    except yaml.reader.ReaderError as refused:
        line = text.count("\n", 0, int(refused.position)) + 1
        raise FileError([Problem(name, line, "", f"holds a character that YAML forbids ({refused.reason})")]) from None
    except RecursionError:
        raise FileError([Problem(name, 0, "", "is nested too deeply")]) from None


class _Loader(yaml.SafeLoader):
    """SafeLoader with the scalars of YAML 1.2's core schema."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML copies it on write


def _resolve(tag: str, pattern: str, first: str) -> None:
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{pattern})$"), list(first))


_resolve("bool", "true|True|TRUE|false|False|FALSE", "tTfF")
_resolve("null", "~|null|Null|NULL|", "~nN")
_Loader.yaml_implicit_resolvers.setdefault("", []).append(("tag:yaml.org,2002:null", re.compile(r"^$")))
_resolve("int", r"[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+", "-+0123456789")
_resolve(
    "float",
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
    "-+.0123456789",
)
_resolve("merge", "<<", "<")


def _float(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> float:
    written = str(loader.construct_scalar(node)).lower()
    return float(written.replace(".inf", "inf").replace(".nan", "nan"))


_Loader.add_constructor("tag:yaml.org,2002:float", _float)


def _duplicates(root: yaml.Node) -> Iterator[tuple[int, str]]:
    """Line and name of every key that its mapping already has."""
    pending, visited = [root], {id(root)}
    while pending:
        node = pending.pop()
        children: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            seen: set[Hashable] = set()
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode):
                    if (key.tag, key.value) in seen and key.value != "<<":
                        yield key.start_mark.line + 1, str(key.value)
                    seen.add((key.tag, key.value))
                children.append(value)
        elif isinstance(node, yaml.SequenceNode):
            children = node.value
        for child in children:
            if id(child) not in visited:  # an alias shows the same node again, and may even hold itself
                visited.add(id(child))
                pending.append(child)


def _line_of(root: yaml.Node, location: Location) -> int:
    node, line = root, root.start_mark.line + 1
    for part in location:
        if isinstance(node, yaml.MappingNode):
            entry = next(((key, value) for key, value in node.value if _is_key(key, part)), None)
            if entry is not None:  # parts that name no key are pydantic's own: union branches, "[key]"
                line, node = entry[0].start_mark.line + 1, entry[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
    return int(line)


def _is_key(key: yaml.Node, part: str | int) -> bool:
    return isinstance(key, yaml.ScalarNode) and key.value == str(part)


def _dotted(location: Location) -> str:
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part != "[key]":
            text += f".{part}" if text else part
    return text


def _shown(location: Location, value: object) -> str:
    """`value` as it may be repeated: short, and not at all where the field may hold a secret."""
    names = [part for part in location if isinstance(part, str)]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if any(_SECRET_NAME.search(_COUNTED_TOKENS.sub("", name) if number else name) for name in names):
        return "a value that is not shown"
    if isinstance(value, dict):
        return f"a mapping of {len(value)} keys"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    text = _URL_CREDENTIALS.sub("***", repr(value))
    return text if len(text) <= _VALUE_SHOWN else text[: _VALUE_SHOWN - 3] + "..."


def _problem_of(file: YamlFile, model: type[BaseModel], error: Any) -> Problem:
    location: Location = error["loc"]
    match error["type"]:
        case "missing":
            return file.problem(location, "is missing")
        case "extra_forbidden":
            return file.problem(location, f"is not a known key{_known(model, location)}", error["input"])
        case "value_error" | "assertion_error":
            what = str(error["ctx"]["error"]) if "ctx" in error else str(error["msg"])
        case _:
            what = str(error["msg"])
            what = what[:1].lower() + what[1:]
    return file.problem(location, what, error["input"])


def _known(model: type[BaseModel], location: Location) -> str:
    """Which keys the mapping around an unknown key may have, the likely one first."""
    models = {model}
    for part in location[:-1]:
        models = {inner for known in models for inner in _after(known, part)}
    known = sorted({info.alias or name for each in models for name, info in each.model_fields.items() if name != "root"})
    if not known:
        return ""
    likely = difflib.get_close_matches(str(location[-1]), known, n=1)
    return f"; did you mean {likely[0]}?" if likely else f"; known here: {', '.join(known)}"


def _after(model: type[BaseModel], part: str | int) -> set[type[BaseModel]]:
    """The models that may lie one step further in: those of the field called `part`, or, below a list or map, the same."""
    for name, info in model.model_fields.items():
        if part in (name, info.alias):
            return set(_models_in(info.annotation))
    if "root" in model.model_fields:
        return set(_models_in(model.model_fields["root"].annotation))
    return {model}


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)


def _syntax_problem(name: str, refused: yaml.MarkedYAMLError) -> Problem:
    mark = refused.problem_mark or refused.context_mark
    what = f"is not valid YAML: {refused.problem or refused.context}"
    return Problem(name, mark.line + 1 if mark else 0, "", what)
