"""How a container starts vLLM, read from its command line: model, port, parallel sizes.

https://docs.vllm.ai/en/latest/cli/serve/ has the options. Environment variables of the container are put in where the
command line names them; what comes from a Secret or a ConfigMap, or out of a script, cannot be read here.
"""

import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

DEFAULT_PORT = 8000  # of vLLM
HIGHEST_PORT = 65_535
_OPTIONS: Mapping[str, str] = {
    "--model": "model",
    "--served-model-name": "served",
    "--port": "port",
    "--tensor-parallel-size": "tp",
    "-tp": "tp",
    "--pipeline-parallel-size": "pp",
    "-pp": "pp",
}
_VARIABLE = re.compile(r"\$\((\w+)\)|\$\{(\w+)\}|\$(\w+)")
_PORT_NAMES = ("http", "http-api", "api", "server", "vllm")


@dataclass(frozen=True, slots=True)
class Launch:
    """What the command line tells. `model` is what metrics and clients call it; empty where vLLM is not started here."""

    model: str = ""
    port: int = DEFAULT_PORT
    tp: int = 1
    pp: int = 1

    @classmethod
    def of(cls, container: Mapping[str, Any], port: str | int | None) -> Self:
        """Read a container of a pod. `port`: name or number of the port, where that is settled already."""
        told = _options(container)
        return cls(
            model=sys.intern(told.get("served") or told.get("model") or ""),
            port=_port(container, port, told.get("port", "")),
            tp=_size(told.get("tp")),
            pp=_size(told.get("pp")),
        )


def _options(container: Mapping[str, Any]) -> dict[str, str]:
    words = list(_words(container))
    told: dict[str, str] = {}
    serves = any(word == "serve" or "vllm" in word for word in words)
    for place, word in enumerate(words):
        option, equals, value = word.partition("=")
        field = _OPTIONS.get(option.replace("_", "-") if option.startswith("--") else option)
        following = words[place + 1] if place + 1 < len(words) else ""
        if field is not None:
            told[field] = value if equals else following
        elif word == "serve" and following and not following.startswith("-"):
            told.setdefault("model", following)
    # `--model` alone tells enough; a port or a size without any sign of vLLM belongs to another program.
    return told if serves or "model" in told else {}


def _words(container: Mapping[str, Any]) -> Iterator[str]:
    values = {one.get("name", ""): one["value"] for one in container.get("env") or () if one.get("value")}
    for word in (*(container.get("command") or ()), *(container.get("args") or ())):
        known = _VARIABLE.sub(lambda found: values.get(found[1] or found[2] or found[3], found[0]), str(word))
        if any(character.isspace() for character in known.strip()):
            yield from _script(known)
        else:
            yield known


def _script(text: str) -> list[str]:
    """The words of a shell script given as one argument."""
    try:
        return shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError:  # an open quotation mark
        return text.split()


def _port(container: Mapping[str, Any], settled: str | int | None, option: str) -> int:
    if isinstance(settled, int):
        return settled
    ports = [one for one in container.get("ports") or () if one.get("protocol", "TCP") == "TCP"]
    by_name = {one.get("name", ""): one.get("containerPort", 0) for one in ports}
    if settled is not None:
        return by_name.get(settled) or DEFAULT_PORT
    if option.isdigit() and 0 < int(option) <= HIGHEST_PORT:
        return int(option)
    named = next((by_name[name] for name in _PORT_NAMES if by_name.get(name)), 0)
    return named or next((one["containerPort"] for one in ports if one.get("containerPort")), DEFAULT_PORT)


def _size(text: str | None) -> int:
    return max(1, int(text)) if text and text.isdigit() else 1
