"""Conditions: CEL expressions in runbooks, type-checked when loaded, behind a small interface.

`VARIABLES`, with the measures of `slo` and `goal`, is the whole list of what a condition can read. A condition is true,
false, or unreadable; it is unreadable when its truth hangs on something that could not be measured, and unreadable is
never taken for either. As in CEL, `a || b` is true once either side is, whatever the other.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from cel_expr_python import cel

from detectors.finding import Symptom

Fact = float | int | bool | str | Mapping[str, float] | Mapping[str, str]
Facts = Mapping[str, Fact]

MEASURES: Mapping[str, str] = MappingProxyType(
    {
        "requests": "answers (good or bad) that the door has from the target",
        "success": "share of those that were whole, 0 to 1",
        "ttft": "seconds within which 95 % of first bytes came at the door",
        "ttft_vs_peers": "median time to first byte over the median of the peers'; 1.0 is equal",
        "ttft_tail_vs_peers": "`ttft` over the median of the peers' `ttft`; 1.0 is equal",
        "inter_token": "seconds within which 95 % of tokens followed the one before",
        "inter_token_vs_peers": "median time between tokens over the median of the peers'; 1.0 is equal",
        "steps_per_second": "engine steps a second",
        "generation_tokens_per_second": "tokens generated a second",
    }
)
GOALS: Mapping[str, str] = MappingProxyType(
    {
        "ttft": 'promised `slo["ttft"]`, relaxed while the peers are slow too',
        "inter_token": 'promised `slo["inter_token"]`, relaxed while the peers are slow too',
        "success": 'promised `slo["success"]`',
    }
)


@dataclass(frozen=True, slots=True)
class Variable:
    """One name that a condition can use. `keys` are the keys it may be asked for; None where loading says which."""

    type: Any
    means: str
    keys: frozenset[str] | None = None


VARIABLES: Mapping[str, Variable] = MappingProxyType(
    {
        "score": Variable(cel.Type.DOUBLE, "score of the diagnosis, 0 to 1"),
        "attempt": Variable(cel.Type.INT, "number of the present or coming run, from 1"),
        "ready": Variable(cel.Type.BOOL, "the target answered its scrape after the last action"),
        "target_state": Variable(cel.Type.STRING, "serving, drained, ejected, down or blind"),
        "healthy_peers": Variable(cel.Type.DOUBLE, "peers of the target that serve and that no incident blames"),
        "roomy_peers": Variable(cel.Type.DOUBLE, "of these, those with an empty queue and a fifth of their KV cache free"),
        "hottest_expert": Variable(
            cel.Type.DOUBLE,
            "tokens of the target's hottest expert over the mean of its layer; 1.0 where nobody counts them",
        ),
        "total_peers": Variable(cel.Type.DOUBLE, "peers of the target: same model, hardware and role"),
        "signal": Variable(
            cel.Type.Map(cel.Type.STRING, cel.Type.DOUBLE),
            "newest fresh value of a canonical signal of the target, sampled after the last action",
        ),
        "slo": Variable(
            cel.Type.Map(cel.Type.STRING, cel.Type.DOUBLE),
            "how users of the target were served over the span that is asked about",
            frozenset(MEASURES),
        ),
        "goal": Variable(cel.Type.Map(cel.Type.STRING, cel.Type.DOUBLE), "what users are promised", frozenset(GOALS)),
        "shown": Variable(
            cel.Type.Map(cel.Type.STRING, cel.Type.DOUBLE),
            "1.0 for a symptom that the target shows and the diagnosis explains, else 0.0",
            frozenset(Symptom),
        ),
        "outcomes": Variable(
            cel.Type.Map(cel.Type.STRING, cel.Type.STRING), "done, failed or unknown, of the steps done in this attempt"
        ),
    }
)


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """All the names that one kind of condition can use."""

    variables: Mapping[str, Variable]


REPAIR = Vocabulary(VARIABLES)
"""What the conditions of runbooks are about: one incident and its target."""

_MAPS = frozenset({"signal", "slo", "goal", "outcomes", "shown"})
_TEXT = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_MAP_USE = re.compile(r"(?<![\w.])(signal|slo|goal|outcomes|shown)\b(\s*\[\s*(?:'([^'\\]*)'|\"([^\"\\]*)\")\s*\])?")
_CEL_ERROR = re.compile(r"^(?:INVALID_ARGUMENT: )?ERROR: <input>:(\d+):(\d+): (.*)$", re.MULTILINE)
_UNDECLARED = re.compile(r"undeclared reference to '([^']*)'")


class Truth(StrEnum):
    """What a condition comes to. Unreadable is neither true nor false."""

    TRUE = "true"
    FALSE = "false"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Answer:
    """A condition's truth and why, in words with the numbers that it read."""

    truth: Truth
    why: str

    def __bool__(self) -> bool:
        return self.truth is Truth.TRUE


class ConditionError(ValueError):
    """A condition that cannot be used. `where` says whose it is; line and column count from 1 inside the expression."""

    def __init__(self, where: str, line: int, column: int, what: str) -> None:
        self.where, self.line, self.column, self.what = where, line, column, what
        super().__init__(f"{where}: line {line}, column {column}: {what}")


@dataclass(frozen=True)
class Condition:
    """One compiled expression. `reads` are the names and keys it uses, such as `ready` and `signal["door.in_flight"]`."""

    text: str
    reads: tuple[tuple[str, str | None], ...]
    _program: Any

    @classmethod
    def compile(
        cls,
        text: str,
        where: str,
        *,
        signals: Iterable[str] | None = None,
        steps: Iterable[str] | None = None,
        vocabulary: Vocabulary = REPAIR,
    ) -> "Condition":
        """Check and compile `text`. `signals` and `steps`, where given, are all that may be asked for.

        Raises ConditionError for a syntax error, an unknown name or key, a wrong type, or a result that is not a bool.
        """
        known = {name: v.keys for name, v in vocabulary.variables.items()}
        for name, keys in (("signal", signals), ("outcomes", steps)):
            if name in known:
                known[name] = None if keys is None else frozenset(keys)
        uses = _map_uses(text, where, known)
        try:
            program = _environment(vocabulary).compile(text)
        except RuntimeError as refused:
            raise _refused(where, str(refused), vocabulary) from None
        if program.return_type() != cel.Type.BOOL:
            raise ConditionError(where, 1, 1, f"must be true or false, but is {program.return_type().name().lower()}")
        plain = _TEXT.sub("''", text)
        scalars = [n for n in vocabulary.variables if n not in _MAPS and re.search(rf"(?<![\w.]){n}\b", plain)]
        return cls(text, (*((name, None) for name in scalars), *uses), program)

    def holds(self, facts: Facts) -> Answer:
        """Whether the condition is true of `facts`. Facts that are left out, and NaN, are unreadable."""
        known = self._asked(facts)
        try:
            value = self._program.eval(data=known)
            kind, plain = value.type(), value.value()
        except (RuntimeError, TypeError, ValueError) as refused:
            return Answer(Truth.UNREADABLE, f"`{self.text}` cannot be evaluated: {refused}")
        if kind != cel.Type.BOOL:
            missing = [_named(use) for use in self.reads if _read(use, known) is None]
            reason = f"{', '.join(missing)} could not be read" if missing else str(plain)
            return Answer(Truth.UNREADABLE, f"`{self.text}` cannot be told: {reason}")
        truth = Truth.TRUE if plain else Truth.FALSE
        return Answer(truth, f"`{self.text}` is {truth}{self._numbers(known)}")

    def _asked(self, facts: Facts) -> dict[str, Any]:
        """What the expression reads and can be read; nothing else is looked at, so facts may be worked out on demand."""
        known: dict[str, Any] = {}
        for name, key in self.reads:
            if key is None:
                if name in facts and not _is_nan(facts[name]):
                    known[name] = facts[name]
                continue
            asked = known.setdefault(name, {})
            held = facts.get(name)
            if isinstance(held, Mapping) and key in held and not _is_nan(held[key]):
                asked[key] = held[key]
        return known

    def _numbers(self, known: Mapping[str, Any]) -> str:
        seen = [f"{_named(use)} = {_shown(_read(use, known))}" for use in dict.fromkeys(self.reads)]
        return f" ({', '.join(seen)})" if seen else ""


@lru_cache(maxsize=4096)
def compiled(text: str) -> Condition:
    """The condition of a runbook that was loaded already, so it is known to compile."""
    return Condition.compile(text, "condition")


@lru_cache(maxsize=8)
def _environment(vocabulary: Vocabulary) -> Any:
    return cel.NewEnv(variables={name: variable.type for name, variable in vocabulary.variables.items()})


def _map_uses(text: str, where: str, known: Mapping[str, frozenset[str] | None]) -> list[tuple[str, str | None]]:
    """Every use of a map, refused unless it asks for one literal key.

    That keeps `all` over nothing, `size` and `in` from turning what is missing into true or false, and lets every key be
    checked when the runbook is loaded.
    """
    strings = [match.span() for match in _TEXT.finditer(text)]
    uses: list[tuple[str, str | None]] = []
    for match in _MAP_USE.finditer(text):
        if any(begin <= match.start() < end for begin, end in strings):
            continue
        name, key = match[1], match[3] if match[3] is not None else match[4]
        if name not in known:
            continue  # the compiler says so, with what there is instead
        line, column = _position(text, match.start())
        if key is None:
            raise ConditionError(where, line, column, f'{name} is read by one key at a time, as in {name}["..."]')
        allowed = known[name]
        if allowed is not None and key not in allowed:
            only = " (it holds gauges only)" if name == "signal" else ""
            raise ConditionError(where, line, column, f"{name} has no {key!r}{only}{did_you_mean(key, allowed)}")
        uses.append((name, key))
    return uses


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The likeliest of `known` names as a clause, or all of them when none is close."""
    names = sorted(known)
    likely = difflib.get_close_matches(word, names, n=1)
    if likely:
        return f"; did you mean {likely[0]}?"
    return f"; known here: {', '.join(names)}" if names else "; there is none"


def _refused(where: str, message: str, vocabulary: Vocabulary) -> ConditionError:
    found = _CEL_ERROR.search(message)
    if found is None:
        return ConditionError(where, 1, 1, message)
    what = found[3]
    undeclared = _UNDECLARED.match(what)
    if undeclared:
        what = f"there is no {undeclared[1]!r}{did_you_mean(undeclared[1], vocabulary.variables)}"
    elif "(double, int)" in what or "(int, double)" in what:
        what += "; measured values are doubles: write 1.0, not 1"
    return ConditionError(where, int(found[1]), int(found[2]), what)


def _position(text: str, offset: int) -> tuple[int, int]:
    before = text[:offset]
    return before.count("\n") + 1, offset - before.rfind("\n")


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and value != value  # noqa: PLR0124 - the definition of NaN


def _read(use: tuple[str, str | None], known: Mapping[str, Any]) -> Any:
    name, key = use
    return known.get(name) if key is None else known.get(name, {}).get(key)


def _named(use: tuple[str, str | None]) -> str:
    name, key = use
    return name if key is None else f'{name}["{key}"]'


def _shown(value: object) -> str:
    if value is None:
        return "not read"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.4g}" if isinstance(value, float) else str(value)
