"""Whether a drill may begin, what it would break, and whether the fleet could bear that. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from agent.drill.fleet import EngineSeen, Sight
from agent.drill.users import Served
from runbooks.conditions import Facts, Truth
from runbooks.drill import ANY, BUSIEST, DOOR, Drill, FaultOrder, FleetKind
from runbooks.drill_conditions import condition
from serving.fleet.entity import Entity, EntityKind

SERVING = frozenset({"serving", "suspect"})
STALE_S = 30.0  # the warden writes its page at each step; one that stands still for so long is not looking
THE_DOOR = Entity(EntityKind.GATEWAY, DOOR)


@dataclass(frozen=True, slots=True)
class Look:
    """All that the conditions of a drill are about, at `now`. `failed` and `elapsed` count from the first injection."""

    now: float
    sight: Sight
    served: Served
    failed: float = 0.0
    elapsed: float = 0.0


@dataclass(frozen=True, slots=True)
class Aim:
    """One fault of the drill and what it breaks."""

    order: FaultOrder
    target: Entity


def facts(look: Look) -> Facts:
    """`look` as the variables of runbooks.drill_conditions."""
    engines = look.sight.engines
    states = Counter(engine.state for engine in engines)
    known: dict[str, float] = {state: float(states[state]) for state in ("suspect", "drained", "ejected", "down", "unseen")}
    return known | {
        "engines": float(len(engines)),
        "serving": float(sum(engine.state in SERVING for engine in engines)),
        "incidents": float(len(look.sight.open)),
        "in_flight": _sum([engine.in_flight for engine in engines]),
        "waiting": _sum([engine.waiting for engine in engines]),
        "kv_usage": max((e.kv_usage for e in engines if e.kv_usage is not None), default=float("nan")),
        "requests": look.served.requests,
        "success": look.served.success,
        "ttft": look.served.ttft,
        "failed": look.failed,
        "elapsed": look.elapsed,
    }


def unsteady(drill: Drill, look: Look) -> tuple[str, ...]:
    """Why the fleet is not in the drill's steady state; empty when it is. What cannot be read is not steady."""
    return (*_standing(drill, look), *_required(drill, look))


def unfit(drill: Drill, kind: FleetKind, sight: Sight) -> tuple[str, ...]:
    """Why the drill is not for this fleet at all, however long one waited."""
    needs, says = drill.fleet, []
    if kind not in needs.kinds:
        says.append(f"it is for {' or '.join(needs.kinds)} fleets, and this one is {kind}")
    most = max(Counter(engine.model for engine in sight.engines).values(), default=0)
    if most < needs.engines:
        says.append(f"it needs {needs.engines} engines of one model, and there are at most {most}")
    if needs.engines_at_most is not None and most > needs.engines_at_most:
        says.append(f"it is for models with at most {needs.engines_at_most} engines, and one has {most}")
    return tuple(says)


def stale(look: Look) -> str | None:
    """Why nobody would see what happens: the warden does not look at the fleet any more."""
    age = look.now - look.sight.at
    return f"the warden has not looked at the fleet for {age:.0f} s" if age > STALE_S else None


def aims(drill: Drill, sight: Sight, others: Mapping[EntityKind, Sequence[Entity]], seed: int) -> tuple[Aim, ...]:
    """What each fault breaks. `others`: what could be broken that is no engine. Raises ValueError, saying what is missing.

    Faults aimed by rule go to different targets as long as there are enough. The same seed and fleet give the same aims.
    """
    rng, taken, chosen = Random(seed), set[Entity](), []
    for order in drill.faults:
        target = _target(order.target, sight, others, rng, taken)
        taken.add(target)
        chosen.append(Aim(order, target))
    return tuple(chosen)


def kind_of(rule: str) -> EntityKind | None:
    """The kind of thing that a target's rule needs to know of, where that is no engine."""
    kind = rule.removeprefix("any ").partition("/")[0]
    return EntityKind(kind) if kind in set(EntityKind) - {EntityKind.ENGINE} else None


def no_headroom(drill: Drill, sight: Sight, chosen: Sequence[Aim]) -> tuple[str, ...]:
    """Why the fleet could not bear what `chosen` may cost, as far as it concerns engines; empty when it could."""
    hit = {aim.target.name for aim in chosen if aim.target.kind is EntityKind.ENGINE}
    if any(aim.target == THE_DOOR for aim in chosen):
        hit = {engine.name for engine in sight.engines}
    radius, says = drill.blast_radius, []
    if radius.engines is not None and len(hit) > radius.engines:
        says.append(f"{len(hit)} engines would be hit, and its blast radius allows {radius.engines}")
    for model in sorted({engine.model for engine in sight.engines if engine.name in hit}):
        able = [engine.name for engine in sight.engines if engine.model == model and engine.state in SERVING]
        share = len(hit & set(able)) / len(able) if able else 1.0
        if share > radius.share + 1e-9:
            says.append(
                f"{share:.0%} of what serves {model} would be hit, and its blast radius allows {radius.share:.0%} "
                f"({len(able)} of its engines serve)"
            )
    return tuple(says)


def beyond(drill: Drill, sight: Sight, chosen: Sequence[Aim]) -> str | None:
    """Why the damage has outgrown the blast radius, counted in engines out of service."""
    hit = {aim.target.name for aim in chosen}
    out = [engine for engine in sight.engines if engine.state not in SERVING]
    strangers = [engine.name for engine in out if engine.name not in hit]
    radius = drill.blast_radius
    if radius.engines is not None and len(out) > radius.engines:
        also = f", {', '.join(strangers)} among them" if strangers else ""
        return f"{len(out)} engines are out of service{also}; its blast radius allows {radius.engines}"
    return None


def _standing(drill: Drill, look: Look) -> Iterator[str]:
    sight = look.sight
    why = stale(look)
    if why is not None:
        yield why
    out = [f"{engine.name} is {engine.state}" for engine in sight.engines if engine.state != "serving"]
    if out:
        yield f"not every engine serves: {', '.join(out[:5])}{f' and {len(out) - 5} more' if len(out) > 5 else ''}"  # noqa: PLR2004 - as many as fit on a line
    if not sight.engines:
        yield "no engine can be seen"
    if sight.open:
        yield f"an incident is open: {', '.join(sight.open[:3])}"
    if sight.paused:
        yield "the warden is paused and would repair nothing (`fleetwarden resume`)"
    if sight.breaker:
        yield f"the warden's breaker is {sight.breaker}"
    if drill.steady.autonomy == "auto" and sight.autonomy != "auto":
        yield f"the warden's autonomy is {sight.autonomy}: it repairs nothing by itself (`steady.autonomy: any` allows that)"


def _required(drill: Drill, look: Look) -> Iterator[str]:
    known = facts(look)
    for text in drill.steady.require:
        answer = condition(text).holds(known)
        if answer.truth is not Truth.TRUE:
            yield answer.why


def _target(
    rule: str, sight: Sight, others: Mapping[EntityKind, Sequence[Entity]], rng: Random, taken: set[Entity]
) -> Entity:
    if rule == DOOR:
        return THE_DOOR
    if "/" in rule:
        named = Entity.parse(rule)
        known = _engines(sight) if named.kind is EntityKind.ENGINE else others.get(named.kind, ())
        if named not in known:
            raise ValueError(f"there is no {named} here; there are: {', '.join(map(str, known[:8])) or 'none'}")
        return named
    kind = EntityKind(rule.removeprefix("any ")) if rule.startswith("any ") else EntityKind.ENGINE
    known = _engines(sight) if kind is EntityKind.ENGINE else others.get(kind, ())
    free = [entity for entity in known if entity not in taken] or list(known)
    if not free:
        raise ValueError(f"this fleet has no {kind} that could be broken")
    if rule == BUSIEST:
        load = {engine.name: _busy(engine) for engine in sight.engines}
        return max(free, key=lambda entity: (load[entity.name], entity))
    assert rule == ANY or rule.startswith("any ")  # noqa: S101 - the schema allows no other rule
    return free[rng.randrange(len(free))]


def _engines(sight: Sight) -> tuple[Entity, ...]:
    return tuple(Entity.engine(engine.name) for engine in sight.engines)


def _busy(engine: EngineSeen) -> float:
    return engine.in_flight if engine.in_flight is not None else -1.0


def _sum(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return sum(known) if known else float("nan")
