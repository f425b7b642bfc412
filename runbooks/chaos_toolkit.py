"""Chaos Toolkit experiments, in and out: https://chaostoolkit.org/reference/api/experiment/.

What the format has a place for stands there (title, description, tags, hypothesis, method, rollbacks); the rest of a drill
rides in an extension named `fleetwarden`. Out and in again loses nothing, and nothing stands twice. What cannot be made a
drill is refused. The providers are functions of agent.drill.chaos, so that Chaos Toolkit itself can run what was exported.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from pydantic import Field, ValidationError
from yaml.reader import Reader

from runbooks.drill import Drill, FaultOrder
from runbooks.drill_loader import Known, mistakes
from runbooks.runbook import Strict
from serving.yaml_file import FileError, Problem, YamlFile, load_text

MODULE = "agent.drill.chaos"
STEADY, HOLDS, INJECT, CLEAR = "is_steady", "holds", "inject", "clear"
EXTENSION = "fleetwarden"
VERSION = "1.0.0"
Place = tuple[str | int, ...]
_FORBIDDEN = re.compile(rf"\t|{Reader.NON_PRINTABLE.pattern}")  # in YAML's text; JSON takes them

# Fields of a drill by where they stand in an experiment; all others ride in the extension.
_TITLED = {"name": "title", "summary": "description", "tags": "tags"}
_STANDARD = {"version", *_TITLED.values(), "steady-state-hypothesis", "method", "rollbacks", "extensions"}
_REFUSED = {
    "secrets": "secrets do not belong into a drill",
    "configuration": "a drill has no variables: write the values where they are used",
    "controls": "a drill has no controls; conditions to call it off go under `abort` of the extension",
    "dry": "say it when it is run: `fleetwarden drill run --dry-run`",
}
_IGNORED = {"contributions", "runtime"}  # say nothing about what happens


class _Provider(Strict):
    """A function that is called."""

    type: str
    module: str = ""
    func: str = ""
    arguments: dict[str, Any] = Field(default_factory=dict)


class _Activity(Strict):
    """One probe or action."""

    type: str
    name: str
    provider: _Provider
    tolerance: Any = None


@dataclass(frozen=True, slots=True)
class _Reader:
    """Collects the mistakes of one experiment."""

    file: YamlFile
    problems: list[Problem]

    def refuse(self, place: Place, what: str, value: object = None) -> None:
        self.problems.append(self.file.problem(place, what, value))

    def activity(self, place: Place, raw: object, kind: str, func: str) -> dict[str, Any] | None:
        """The arguments of an activity that calls `func` of ours; None, with the reason noted, for any other."""
        try:
            found = _Activity.model_validate(raw)
        except ValidationError as refused:
            for error in refused.errors():
                self.refuse((*place, *error["loc"]), f"cannot be expressed as a part of a drill: {error['msg'].lower()}")
            return None
        called = found.provider
        if found.type != kind or called.type != "python" or (called.module, called.func) != (MODULE, func):
            what = f"{found.type} by {called.type} {called.module}.{called.func}".removesuffix(" .")
            self.refuse(place, f"cannot be expressed as a part of a drill: only {kind}s by {MODULE}.{func} can", what)
            return None
        if found.tolerance not in {None, True}:
            self.refuse(
                (*place, "tolerance"), "a condition of a drill is true or not: the tolerance is true", found.tolerance
            )
        return called.arguments


def to_experiment(drill: Drill) -> dict[str, Any]:
    """`drill` as an experiment, ready for JSON."""
    content = drill.model_dump(mode="json")
    steady = content.pop("steady")
    method = [_action(INJECT, order["fault"], order) for order in content.pop("faults")]
    experiment: dict[str, Any] = {"version": VERSION}
    experiment |= {place: content.pop(field) for field, place in _TITLED.items()}
    conditions = [_probe(HOLDS, text, {"condition": text}) for text in steady.pop("require")]
    experiment["steady-state-hypothesis"] = {
        "title": "every engine serves, nothing is open, the warden may act",
        "probes": [_probe(STEADY, "the fleet is steady", {}), *conditions],
    }
    experiment["method"] = method
    experiment["rollbacks"] = [_action(CLEAR, "undo everything", {})]
    experiment["extensions"] = [{"name": EXTENSION, "steady": steady, **content}]
    return experiment


def dump_experiment(drill: Drill) -> str:
    """`drill` as the text of an experiment."""
    return orjson.dumps(to_experiment(drill), option=orjson.OPT_INDENT_2).decode() + "\n"


def read_experiment(path: Path, known: Known) -> Drill:
    """The drill in the experiment at `path`. Raises FileError with every mistake."""
    try:
        return parse_experiment(path.read_bytes().decode("utf-8-sig"), str(path), known)
    except OSError as refused:
        raise FileError([Problem(str(path), 0, "", f"cannot be read: {refused.strerror}")]) from None
    except UnicodeDecodeError:
        raise FileError([Problem(str(path), 0, "", "is not UTF-8 text")]) from None


def parse_experiment(text: str, name: str, known: Known) -> Drill:
    """The drill in the experiment `text`, called `name` in messages. Raises FileError with every mistake."""
    file = _loaded(text, name)
    reader = _Reader(file, [])
    content = _content(reader)
    if reader.problems:
        raise FileError(reader.problems)
    try:
        drill = Drill.model_validate(content)
    except ValidationError as refused:
        raise FileError([_problem(file, error) for error in refused.errors()]) from None
    found = [file.problem(_place(place), what, value) for place, what, value in mistakes(drill, known)]
    if found:
        raise FileError(found)
    return drill


def _loaded(text: str, name: str) -> YamlFile:
    """The JSON with the lines of its keys, which YAML's loader remembers: JSON is YAML, but for some characters."""
    try:
        data = orjson.loads(text)
    except orjson.JSONDecodeError as refused:
        raise FileError([Problem(name, refused.lineno, "", f"is not valid JSON: {refused.msg}")]) from None
    if not isinstance(data, dict):
        raise FileError([Problem(name, 1, "", "is not an experiment: its top is not an object")])
    return YamlFile(name, data, load_text(_FORBIDDEN.sub(" ", text), name).root)


def _content(reader: _Reader) -> dict[str, Any]:
    """What stands in the experiment, as the fields of a drill."""
    data = reader.file.data
    for key in data:
        if key in _REFUSED and data[key]:
            reader.refuse((key,), f"cannot be expressed as a part of a drill: {_REFUSED[key]}")
        elif key not in _STANDARD | _REFUSED.keys() | _IGNORED:
            reader.refuse((key,), "is not a part of an experiment that a drill can express")
    content = _extension(reader)
    content |= {field: data[place] for field, place in _TITLED.items() if place in data}
    steady = content.get("steady", {})
    if isinstance(steady, dict):
        content["steady"] = {**steady, "require": list(_conditions(reader))}
    content["faults"] = list(_orders(reader))
    for number, raw in enumerate(_listed(reader, data.get("rollbacks", []), ("rollbacks",))):
        reader.activity(("rollbacks", number), raw, "action", CLEAR)
    return content


def _extension(reader: _Reader) -> dict[str, Any]:
    entries = _listed(reader, reader.file.data.get("extensions", []), ("extensions",))
    mine = [(n, e) for n, e in enumerate(entries) if isinstance(e, dict) and e.get("name") == EXTENSION]
    if len(mine) != 1:
        what = (
            f"holds no extension named {EXTENSION!r}: say there at least what is expected, as in "
            '{"name": "fleetwarden", "expect": {"incidents": [{"cause": "engine.hung"}]}}'
        )
        reader.refuse(("extensions",), what if not mine else f"holds {len(mine)} extensions named {EXTENSION!r}")
        return {}
    number, entry = mine[0]
    allowed = set(Drill.model_fields) - {*_TITLED, "faults"}
    for key in entry:
        if key != "name" and key not in allowed:
            reader.refuse(("extensions", number, key), f"is not a known key; known here: {', '.join(sorted(allowed))}")
    steady = entry.get("steady")
    if isinstance(steady, dict) and "require" in steady:
        reader.refuse(("extensions", number, "steady", "require"), "belongs into the probes of the hypothesis")
    return {key: value for key, value in entry.items() if key in allowed}


def _conditions(reader: _Reader) -> Iterator[str]:
    hypothesis = reader.file.data.get("steady-state-hypothesis", {})
    probes = hypothesis.get("probes", []) if isinstance(hypothesis, dict) else []
    place: Place = ("steady-state-hypothesis", "probes")
    for number, raw in enumerate(_listed(reader, probes, place)):
        provider = raw.get("provider") if isinstance(raw, dict) else None
        if isinstance(provider, dict) and provider.get("func") == STEADY:
            reader.activity((*place, number), raw, "probe", STEADY)
            continue
        arguments = reader.activity((*place, number), raw, "probe", HOLDS)
        if arguments is not None and set(arguments) == {"condition"}:
            yield arguments["condition"]
        elif arguments is not None:
            reader.refuse((*place, number, "provider", "arguments"), "takes one argument, `condition`")


def _orders(reader: _Reader) -> Iterator[dict[str, Any]]:
    allowed = set(FaultOrder.model_fields)
    for number, raw in enumerate(_listed(reader, reader.file.data.get("method", []), ("method",))):
        arguments = reader.activity(("method", number), raw, "action", INJECT)
        for key in arguments or ():
            if key not in allowed:
                place = ("method", number, "provider", "arguments", key)
                reader.refuse(place, f"is no argument; arguments: {', '.join(sorted(allowed))}")
        if arguments is not None:
            yield arguments


def _listed(reader: _Reader, value: object, place: Place) -> list[Any]:
    if isinstance(value, list):
        return value
    reader.refuse(place, "is not a list", value)
    return []


def _place(place: Place) -> Place:
    """Where a field of a drill stands in an experiment."""
    match place:
        case ("faults", int() as number, *rest):
            return ("method", number, "provider", "arguments", *rest)
        case ("steady", "require", int() as number, *rest):
            return ("steady-state-hypothesis", "probes", number + 1, "provider", "arguments", "condition", *rest)
        case (str() as field, *rest) if field in _TITLED:
            return (_TITLED[field], *rest)
        case ("faults", *rest):
            return ("method", *rest)
    return ("extensions", 0, *place)


def _problem(file: YamlFile, error: Any) -> Problem:
    what = {"missing": "is missing", "extra_forbidden": "is not a known key"}.get(error["type"], str(error["msg"]))
    value = None if error["type"] == "missing" else error["input"]
    return file.problem(_place(tuple(error["loc"])), what[:1].lower() + what[1:], value)


def _probe(func: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"type": "probe", "name": name, "tolerance": True, "provider": _provider(func, arguments)}


def _action(func: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"type": "action", "name": name, "provider": _provider(func, arguments)}


def _provider(func: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"type": "python", "module": MODULE, "func": func, "arguments": arguments}
