"""What can be done to an engine over its own HTTP API: a canary request, pause and resume.

The canary is one tiny completion straight to the engine, past the front door: answered in time is done, anything else is
failed. It changes nothing, so a rehearsal of it and a look-up of it are the probe itself: both speak of now.

Pause and resume are development-mode routes of vLLM. The engine keeps no operation keys; keys are remembered here for the
life of this process, and after that a look-up reads whether the engine is paused. It cannot tell who paused it.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from urllib.parse import urlencode

from actuators.action import Action, Outcome, OutcomeStatus, Scalar, VerbSpec
from actuators.binding import bind, methods_of, verb, verbs_of, with_defaults
from actuators.http_exchange import Answer, HttpClient, NotSent
from serving.fleet.entity import EntityKind
from serving.fleet.topology import EngineFacts

LONGEST_CANARY_S = 300.0
_OK, _NOT_FOUND = 200, 404
_KEYS_KEPT = 10_000
_PAUSE_MODES = ("keep", "wait", "abort")

# A sentence, as users send: a prompt of a single token as the very first request of a worker of vLLM 0.32.0 on CPUs with AMX
# ends that worker by an illegal instruction (seen with exit code -4, each time), so the probe would kill what it probes.
CANARY_PROMPT = "The canary sings in the morning, and the engine answers with one word:"
FactsOf = Callable[[str], EngineFacts | None]


@dataclass(frozen=True, slots=True)
class _Canary:
    deadline_s: float


@dataclass(frozen=True, slots=True)
class _Switch:
    paused: bool
    route: str
    query: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


class EngineHttpActuator:
    """`engine.*` verbs. `facts_of` finds an engine on the current map, and answers None (or raises KeyError) off it."""

    def __init__(self, facts_of: FactsOf, timeout_s: float = 5.0, api_key: str | None = None) -> None:
        self._facts_of = facts_of
        self._http = HttpClient(timeout_s, {"Authorization": f"Bearer {api_key}"} if api_key else {})
        self._specs = verbs_of(self)
        self._makers = methods_of(self)
        self._done: OrderedDict[str, Outcome] = OrderedDict()

    @property
    def verbs(self) -> Mapping[str, VerbSpec]:
        return self._specs

    @verb("engine.canary", summary="Ask the engine for one token, straight, with a deadline", harmless=True)
    def canary(self, *, deadline_s: float = 10.0) -> _Canary | str:
        """A canary with at most `deadline_s` seconds to be answered."""
        if not 0 < deadline_s <= LONGEST_CANARY_S:
            return f"deadline_s must be over 0 and at most {LONGEST_CANARY_S:g} seconds, not {deadline_s:g}"
        return _Canary(deadline_s)

    @verb("engine.pause", summary="Hold the engine's scheduler", undo="engine.resume", takes_capacity=True)
    def pause(self, *, mode: str = "keep") -> _Switch | str:
        """A pause. `keep` freezes requests until resume; `wait` lets them finish; `abort` fails them."""
        if mode not in _PAUSE_MODES:
            return f"mode must be one of {', '.join(_PAUSE_MODES)}, not {mode!r}"
        return _Switch(paused=True, route="/pause", query={"mode": mode})

    @verb("engine.resume", summary="Let the engine's scheduler go on", undo="engine.pause", recovery=True)
    def resume(self) -> _Switch:
        """A resumption."""
        return _Switch(paused=False, route="/resume")

    def rehearse(self, action: Action) -> Outcome:
        prepared = self._prepared(action)
        if isinstance(prepared, Outcome):
            return prepared
        facts, wish = prepared
        return self._probe(facts, wish) if isinstance(wish, _Canary) else self._foreseen(facts, wish)

    def apply(self, action: Action, key: str) -> Outcome:
        prepared = self._prepared(action)
        if isinstance(prepared, Outcome):
            return prepared
        facts, wish = prepared
        if isinstance(wish, _Canary):
            return self._probe(facts, wish)
        if key in self._done:
            return self._done[key]
        foreseen = self._foreseen(facts, wish)
        if foreseen.status is OutcomeStatus.FAILED or foreseen.before == foreseen.after:
            return self._remembered(key, foreseen)
        return self._remembered(key, self._switched(facts, wish, foreseen))

    def look_up(self, action: Action, key: str) -> Outcome:
        prepared = self._prepared(action)
        if isinstance(prepared, Outcome):
            return prepared
        facts, wish = prepared
        if isinstance(wish, _Canary):
            return self._probe(facts, wish)
        if key in self._done:
            return self._done[key]
        paused = self._paused(facts)
        if isinstance(paused, Outcome):
            # Without a pause route it can never have happened; an engine that does not answer now leaves it open.
            return paused if paused.permanent else Outcome(OutcomeStatus.UNKNOWN, paused.detail)
        status = OutcomeStatus.DONE if paused is wish.paused else OutcomeStatus.FAILED
        return Outcome(status, f"engine {facts.name} is {_words(paused)} now", after=_state(paused))

    def _prepared(self, action: Action) -> tuple[EngineFacts, _Canary | _Switch] | Outcome:
        """The engine and the wish of an action, or the failure that says what is wrong with it."""
        spec = self._specs.get(action.verb)
        if spec is None:
            return _failed(f"{action.verb!r} is nothing an engine's API does", permanent=True)
        if action.target.kind is not EntityKind.ENGINE:
            return _failed(f"{action.verb} works on engines, not on {action.target}", permanent=True)
        problems = bind(spec, action.arguments)
        wish: _Canary | _Switch | str = (
            "; ".join(problems) if problems else self._makers[action.verb](**with_defaults(spec, action.arguments))
        )
        if isinstance(wish, str):
            return _failed(f"{action.verb}: {wish}", permanent=True)
        try:
            facts = self._facts_of(action.target.name)
        except KeyError:
            facts = None
        if facts is None:
            return _failed(f"{action.target} is not on the map", permanent=True)
        if not facts.url:
            return _failed(f"{action.target} has no address at the moment: its pod is gone, or not placed yet")
        return facts, wish

    def _probe(self, facts: EngineFacts, wish: _Canary) -> Outcome:
        """One completion of one token."""
        body = {"model": facts.model, "prompt": CANARY_PROMPT, "max_tokens": 1, "temperature": 0.0, "stream": False}
        answer = self._http.exchange("POST", f"{facts.url}/v1/completions", body=body, timeout_s=wish.deadline_s)
        if not isinstance(answer, Answer):
            return _failed(f"engine {facts.name}: {answer.says}")
        after: dict[str, Scalar] = {"status": answer.status, "ms": round(answer.seconds * 1000, 1)}
        if answer.status == _OK and answer.fields.get("choices"):
            return Outcome(OutcomeStatus.DONE, f"engine {facts.name} answered in {after['ms']} ms", after=after)
        return Outcome(OutcomeStatus.FAILED, f"engine {facts.name} answered {answer.says}", after=after)

    def _foreseen(self, facts: EngineFacts, wish: _Switch) -> Outcome:
        """What a switch would do to the live state, without doing it."""
        paused = self._paused(facts)
        if isinstance(paused, Outcome):
            return paused
        detail = f"engine {facts.name}: from {_words(paused)} to {_words(wish.paused)}"
        if paused is wish.paused:
            detail = f"engine {facts.name} already is {_words(paused)}"
        return Outcome(OutcomeStatus.DONE, detail, _state(paused), _state(wish.paused))

    def _paused(self, facts: EngineFacts) -> bool | Outcome:
        """Whether the engine is paused now, or the failure to read it."""
        answer = self._http.exchange("GET", f"{facts.url}/is_paused")
        if not isinstance(answer, Answer):
            return _failed(f"engine {facts.name} cannot be asked whether it is paused: {answer.says}")
        if answer.status == _NOT_FOUND:
            return _failed(
                f"engine {facts.name} has no pause route: its development mode is off (VLLM_SERVER_DEV_MODE=1 turns it on)",
                permanent=True,
            )
        paused = answer.fields.get("is_paused")
        if answer.status == _OK and isinstance(paused, bool):
            return paused
        return _failed(f"engine {facts.name}: its answer about being paused cannot be understood: {answer.says}")

    def _switched(self, facts: EngineFacts, wish: _Switch, foreseen: Outcome) -> Outcome:
        """Send the switch. What the engine says of it decides; where it says nothing clear, the outcome is unknown."""
        url = f"{facts.url}{wish.route}" + (f"?{urlencode(wish.query)}" if wish.query else "")
        answer = self._http.exchange("POST", url)
        if isinstance(answer, NotSent):
            return Outcome(OutcomeStatus.FAILED, f"not sent: {answer.says}", foreseen.before, foreseen.before)
        if isinstance(answer, Answer) and answer.status == _OK:
            return foreseen
        return Outcome(OutcomeStatus.UNKNOWN, f"engine {facts.name}: {answer.says}", foreseen.before)

    def _remembered(self, key: str, outcome: Outcome) -> Outcome:
        """Keep what was done under `key`."""
        if outcome.status is OutcomeStatus.DONE:
            self._done[key] = outcome
            if len(self._done) > _KEYS_KEPT:
                self._done.popitem(last=False)
        return outcome


def _state(paused: bool) -> Mapping[str, Scalar]:  # noqa: FBT001 - the state is this one fact
    return MappingProxyType({"paused": paused})


def _words(paused: bool) -> str:  # noqa: FBT001 - the state is this one fact
    return "paused" if paused else "running"


def _failed(says: str, *, permanent: bool = False) -> Outcome:
    return Outcome(OutcomeStatus.FAILED, says, permanent=permanent)
