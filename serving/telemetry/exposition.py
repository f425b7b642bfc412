"""Prometheus' text exposition, parsed for the names that are wanted and no others.

A scrape holds far more series than are looked at, so lines are found by one regular expression built from the wanted
names, and only those are taken apart. Label sets repeat from scrape to scrape and are remembered. The rules:

* Lines of other names are not looked at; a wanted line that cannot be read makes the whole answer unreadable, as it does
  for Prometheus, for then nothing else in the answer can be trusted to be whole.
* A text that does not end in a line feed was cut off. So was an OpenMetrics text without `# EOF`.
* Timestamps are read past: a sample is as old as the scrape that brought it. OpenMetrics exemplars are read past too.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

Labels = Mapping[str, str]
Samples = dict[str, list[tuple[Labels, float]]]

_NO_LABELS: Labels = MappingProxyType({})
_LABEL = re.compile(r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*|"(?:[^"\\\n]|\\.)+")[ \t]*=[ \t]*"((?:[^"\\\n]|\\.)*)"[ \t]*(?:,|$)')
_BODY = r'\{((?:[^"}\n]|"(?:[^"\\\n]|\\.)*")*)\}'
_REST = re.compile(rf"[ \t]*(?:{_BODY})?[ \t]*([^\s#{{}}]+)(?:[ \t]+([^\s#{{}}]+))?[ \t\r]*(?:#.*)?$")
_ANY_LINE = re.compile(
    r"\n(?:# (?:HELP|TYPE|UNIT|EOF)\b|[ \t]*[a-zA-Z_:][a-zA-Z0-9_:]*[ \t]*(?:\{[^\n]*\}[ \t]*|[ \t]+)[-+.\dNI])"
)
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", "\\": "\\", '"': '"'}
_REMEMBERED = 100_000


class ExpositionError(ValueError):
    """A text that is not a whole, readable exposition. The message is a sentence about the text."""


class ExpositionParser:
    """Parses expositions for a fixed set of metric names. One parser serves one thread."""

    def __init__(self, names: Iterable[str]) -> None:
        wanted = _alternation(sorted(set(names)))
        # The usual line (no brace or number sign inside, nothing after the value) is taken apart at once, others later.
        self._lines = re.compile(
            rf"\n[ \t]*({wanted})(?=[ \t{{])(?:(?:\{{([^}}\n#]*)\}})?[ \t]*([^\s#{{}}]+)(?=\n)|([^\n]*))"
        )
        self._known: dict[str, Labels] = {"": _NO_LABELS}

    def parse(self, text: str, *, open_metrics: bool = False) -> Samples:
        """The samples of the wanted names, by name, in the order of the text. Raises ExpositionError."""
        _check_whole(text, open_metrics=open_metrics)
        found: Samples = {}
        known = self._known
        for name, body, value, rest in self._lines.findall("\n" + text):
            try:
                if rest:
                    body, value = _taken_apart(rest)  # noqa: PLW2901 - the same two things, found the slow way
                labels = known.get(body)
                if labels is None:
                    labels = self._remember(body)
                sample = (labels, float(value))
            except ValueError:
                raise ExpositionError(_unreadable(text, name, body, value, rest)) from None
            if name in found:
                found[name].append(sample)
            else:
                found[name] = [sample]
        return found

    def _remember(self, body: str) -> Labels:
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        labels = self._known[body] = MappingProxyType(dict(_labels(body)))
        return labels


def decode(raw: bytes) -> str:
    """The answer's bytes as text. Raises ExpositionError for what is plainly no exposition: nothing, HTML, binary."""
    if not raw.strip():
        raise ExpositionError("the answer is empty")
    if b"\0" in raw:
        raise ExpositionError("the answer is binary, not text")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise ExpositionError("the answer is not UTF-8 text") from None
    if text.lstrip().startswith("<"):
        raise ExpositionError("the answer is HTML or XML, a page for people, not metrics")
    return text


def _check_whole(text: str, *, open_metrics: bool) -> None:
    if not _ANY_LINE.search("\n" + text):
        raise ExpositionError(f"the answer has no line of metrics; it begins {text.strip()[:40]!r}")
    if not text.endswith("\n"):
        raise ExpositionError("the answer was cut off in its last line")
    if open_metrics and not text.rstrip().endswith("# EOF"):
        raise ExpositionError("the answer was cut off before its # EOF")


def _taken_apart(rest: str) -> tuple[str, str]:
    """The label body and the value of an unusual line."""
    match = _REST.match(rest)
    if match is None:
        raise ValueError(rest)
    body, value, timestamp = match.groups()
    if timestamp is not None:
        float(timestamp)
    return body or "", value


def _labels(body: str) -> Iterator[tuple[str, str]]:
    position, end = 0, len(body.rstrip(" \t"))
    while position < end:
        match = _LABEL.match(body, position)
        if match is None:
            raise ValueError(body)
        name, value = match.groups()
        yield (_unescaped(name[1:-1]) if name.startswith('"') else name), _unescaped(value)
        position = match.end()


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[0]), text)


def _unreadable(text: str, name: str, body: str, value: str, rest: str) -> str:
    written = rest or (f"{{{body}}} {value}" if body else f" {value}")
    found = re.search(re.escape(name) + r"[ \t]*" + re.escape(written.strip()), text)
    line = text.count("\n", 0, found.start()) + 1 if found else 0
    place = f"line {line} of the answer" if line else "a line of the answer"
    return f"{place} cannot be read: {(name + written)[:100]!r}"


def _alternation(names: list[str]) -> str:
    """A regular expression for exactly these names that shares their beginnings, so a stranger is refused early."""
    if not names:
        return "(?!)"
    if len(names) == 1:
        return re.escape(names[0])
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name[:1], []).append(name[1:])
    branches = [re.escape(first) + (_alternation(rest) if any(rest) else "") for first, rest in groups.items() if first]
    optional = "?" if "" in groups else ""
    return f"(?:{'|'.join(branches)}){optional}" if len(branches) > 1 or optional else branches[0]
