"""Names replaced in a recording, so that a case can be shown to others: engines, nodes, addresses, models, jobs.

The same name always becomes the same pseudonym, whichever label, span or event it stands in. Nothing is kept because it
looks harmless: only values of a few labels that vLLM and the front door choose themselves, out of fixed words and numbers,
stay as they are; every other label goes.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from serving.telemetry.recording_files import Happening

Labels = Mapping[str, str]

EVERYWHERE = "all"
DOOR = "door"

# What stays, where the whole value looks like this.
_KEPT: Mapping[str, re.Pattern[str]] = {
    name: re.compile(pattern)
    for name, pattern in {
        "__name__": r"(vllm|door|fleetwarden):[a-z0-9_]+|(process|python|scrape)_[a-z0-9_]+|up",
        "le": r"\+Inf|[0-9.eE+-]+",
        "engine": r"[0-9]{1,4}",
        "reason": r"capacity|deferred",
        "finished_reason": r"stop|length|abort|error|repetition",
        "source": r"local_compute|local_cache_hit|external_kv_transfer",
        "sleep_state": r"awake|weights_offloaded|discard_all",
        "result": r"ok|timeout|connection|client_closed|http_[0-9]{3}",
        "kind": r"refused|timeout|status|garbage|too_large|other",
    }.items()
}
# What is replaced: the label, and what kind of thing it names.
_REPLACED = {
    "replica": "engine",
    "node": "node",
    "instance": "host",
    "model": "model",
    "model_name": "model",
    "job": "job",
}
_PHASES = frozenset({"start", "end", "ready", "health", "silence"})


class Names(Protocol):
    """How names are written into a recording."""

    def series(self, labels: Labels) -> dict[str, str]:
        """The labels of one series, name included."""
        ...

    def engine(self, name: str) -> str:
        """The name of an engine."""
        ...

    def happening(self, label: Happening) -> Happening:
        """One label of the truth."""
        ...


class PlainNames:
    """Everything as it is."""

    def series(self, labels: Labels) -> dict[str, str]:
        return dict(labels)

    def engine(self, name: str) -> str:
        return name

    def happening(self, label: Happening) -> Happening:
        return label


class Pseudonyms:
    """Names replaced by kind and number, in the order in which they come: `engine-1`, `node-1`, `model-1`.

    `known_fault` tells whether a word of a label is the name of a kind of fault, which stays.
    """

    def __init__(self, known_fault: Callable[[str], bool] = lambda _: False) -> None:
        self._given: dict[tuple[str, str], str] = {}
        self._count: dict[str, int] = {}
        self._told: dict[frozenset[tuple[str, str]], int] = {}
        self._known_fault = known_fault

    def series(self, labels: Labels) -> dict[str, str]:
        named = dict(self._labels(labels))
        key = frozenset(named.items())
        again = self._told[key] = self._told.get(key, 0) + 1
        if again > 1:  # two series that differed in labels that are gone; they stay two
            named["series"] = str(again)
        return named

    def engine(self, name: str) -> str:
        return self._pseudonym("engine", name)

    def happening(self, label: Happening) -> Happening:
        target = label.target if label.target == EVERYWHERE else self.engine(label.target)
        fault = label.fault if self._known_fault(label.fault) else self._pseudonym("fault", label.fault)
        phase = label.phase if label.phase in _PHASES else "remark"
        return replace(label, target=target, fault=fault, phase=phase, how="", causes=())

    def _labels(self, labels: Labels) -> list[tuple[str, str]]:
        told = []
        for name, value in labels.items():
            if name in _KEPT:
                told.append((name, value if _KEPT[name].fullmatch(value) else self._pseudonym("word", value)))
            elif name in _REPLACED:
                told.append((name, self._pseudonym(_REPLACED[name], value)))
            elif name == "target":
                told.append((name, value if value == DOOR else self.engine(value)))
        return told

    def _pseudonym(self, kind: str, name: str) -> str:
        known = self._given.get((kind, name))
        if known is None:
            self._count[kind] = self._count.get(kind, 0) + 1
            known = self._given[kind, name] = f"{kind}-{self._count[kind]}"
        return known
