"""An actuator over a world in memory: for rehearsing the loop itself, with failures and crashes on cue.

The world outlives the actuator, as the real one outlives the warden: after a scripted crash, make a new ScriptedActuator
over the same ScriptedWorld and look at what was done, by key.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from actuators.action import Action, Outcome, OutcomeStatus, Scalar, VerbSpec
from actuators.binding import bind, with_defaults
from serving.fleet.entity import Entity


class Cue(StrEnum):
    """How the next application of a verb goes. Effect: the world really changes."""

    DONE = "done"
    FAIL = "fail"  # no effect, a retry may help
    FAIL_FOR_GOOD = "fail_for_good"  # no effect, a retry cannot help
    LOST_ANSWER = "lost_answer"  # effect, but the outcome is unknown
    LOST_REQUEST = "lost_request"  # no effect, and the outcome is unknown
    CRASH_BEFORE = "crash_before"  # ScriptedCrash before the effect
    CRASH_AFTER = "crash_after"  # ScriptedCrash after the effect


class ScriptedCrash(BaseException):
    """The caller's process dies here. Not an Exception: no handler on the way may survive it."""


@dataclass(frozen=True, slots=True)
class ScriptedVerb:
    """A verb and what it makes of its target: after it, the state holds `becomes`, and the arguments of the same name.

    `needs`: the state that must hold before; where it does not, the act fails for good.
    """

    spec: VerbSpec
    becomes: Mapping[str, Scalar] = field(default_factory=lambda: MappingProxyType({}))
    needs: Mapping[str, Scalar] = field(default_factory=lambda: MappingProxyType({}))


@dataclass
class ScriptedWorld:
    """What survives the caller.

    `state`: target -> facts. `effects`: operation key -> how often the world changed for it (idempotence: never over 1).
    `calls`: key -> how often `apply` was called (an unknown outcome must be looked up, not applied again). `done`: every
    operation that took effect, in order.
    """

    state: dict[Entity, dict[str, Scalar]] = field(default_factory=dict)
    effects: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    done: list[tuple[str, Action]] = field(default_factory=list)
    lookups_blocked: bool = False
    cues: defaultdict[str, deque[Cue]] = field(default_factory=lambda: defaultdict(deque))

    def cue(self, verb: str, *cues: Cue) -> None:
        """Say how the next applications of `verb` go, in order; after these they are done again."""
        self.cues[verb].extend(cues)

    def facts(self, target: Entity) -> Mapping[str, Scalar]:
        """The target's state now (a copy)."""
        return MappingProxyType(dict(self.state.get(target, {})))


class ScriptedActuator:
    """Verbs over a ScriptedWorld. Keeps the whole contract of an actuator except where a cue says otherwise."""

    def __init__(self, verbs: Iterable[ScriptedVerb], world: ScriptedWorld) -> None:
        self._scripts = {script.spec.verb: script for script in verbs}
        self._specs = MappingProxyType({name: script.spec for name, script in self._scripts.items()})
        self.world = world

    @property
    def verbs(self) -> Mapping[str, VerbSpec]:
        return self._specs

    def rehearse(self, action: Action) -> Outcome:
        refusal = self._refusal(action)
        if refusal is not None:
            return refusal
        cues = self.world.cues[action.verb]
        if cues and cues[0] in (Cue.FAIL, Cue.FAIL_FOR_GOOD):
            return self._failed(action, cues[0])
        return self._outcome(action, "would be done", self._after(action))

    def apply(self, action: Action, key: str) -> Outcome:
        self.world.calls[key] += 1
        if self.world.effects[key]:
            facts = self.world.facts(action.target)
            return Outcome(OutcomeStatus.DONE, "already done under this key", before=facts, after=facts)
        refusal = self._refusal(action)
        if refusal is not None:
            return refusal
        cues = self.world.cues[action.verb]
        return self._play(action, key, cues.popleft() if cues else Cue.DONE)

    def look_up(self, action: Action, key: str) -> Outcome:
        facts = self.world.facts(action.target)
        if self.world.lookups_blocked:
            return Outcome(OutcomeStatus.UNKNOWN, "the world cannot be asked now", before=facts, after=facts)
        if self.world.effects[key]:
            return Outcome(OutcomeStatus.DONE, "the world shows it was done", before=facts, after=facts)
        return Outcome(OutcomeStatus.FAILED, "the world shows it never happened", before=facts, after=facts)

    def _play(self, action: Action, key: str, cue: Cue) -> Outcome:
        if cue is Cue.CRASH_BEFORE:
            raise ScriptedCrash(f"before {action.verb}")
        if cue in (Cue.FAIL, Cue.FAIL_FOR_GOOD):
            return self._failed(action, cue)
        if cue is Cue.LOST_REQUEST:
            return Outcome(OutcomeStatus.UNKNOWN, "no answer came", before=self.world.facts(action.target))
        outcome = self._outcome(action, "done", self._after(action))
        self._take_effect(action, key)
        if cue is Cue.CRASH_AFTER:
            raise ScriptedCrash(f"after {action.verb}")
        if cue is Cue.LOST_ANSWER:
            return Outcome(OutcomeStatus.UNKNOWN, "no answer came", before=outcome.before)
        return outcome

    def _take_effect(self, action: Action, key: str) -> None:
        if not self._specs[action.verb].harmless:
            self.world.state[action.target] = dict(self._after(action))
        self.world.effects[key] += 1
        self.world.done.append((key, action))

    def _after(self, action: Action) -> Mapping[str, Scalar]:
        script, facts = self._scripts[action.verb], dict(self.world.facts(action.target))
        if script.spec.harmless:
            return MappingProxyType(facts)
        facts.update(script.becomes)
        facts.update({name: value for name, value in with_defaults(script.spec, action.arguments).items() if name in facts})
        return MappingProxyType(facts)

    def _refusal(self, action: Action) -> Outcome | None:
        script = self._scripts.get(action.verb)
        if script is None:
            return Outcome(OutcomeStatus.FAILED, f"{action.verb!r} is not scripted", permanent=True)
        problems = bind(script.spec, action.arguments)
        if problems:
            return Outcome(OutcomeStatus.FAILED, "; ".join(problems), permanent=True)
        facts = self.world.facts(action.target)
        unmet = {name: value for name, value in script.needs.items() if facts.get(name) != value}
        if not unmet:
            return None
        return Outcome(OutcomeStatus.FAILED, f"{action.target} is not {unmet}", before=facts, after=facts, permanent=True)

    def _failed(self, action: Action, cue: Cue) -> Outcome:
        facts = self.world.facts(action.target)
        permanent = cue is Cue.FAIL_FOR_GOOD
        return Outcome(OutcomeStatus.FAILED, f"{action.verb} failed on cue", before=facts, after=facts, permanent=permanent)

    def _outcome(self, action: Action, detail: str, after: Mapping[str, Scalar]) -> Outcome:
        return Outcome(OutcomeStatus.DONE, f"{action.verb} {detail}", before=self.world.facts(action.target), after=after)
