"""Orders: what people and the warden have told the door, as values; nothing here does I/O.

A drain belongs to whoever made it. A person's drain is never undone by the warden, and a person's drain of an engine that
the warden had drained takes it over. Each order bears an operation key; the same key a second time changes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar

from pydantic import ConfigDict

WARDEN = "fleetwarden"
KEPT_OPERATIONS = 2000
LEAST_WEIGHT, MOST_WEIGHT = 0.01, 100.0

_STRICT = ConfigDict(extra="forbid")


class OrderVerb(StrEnum):
    """What can be ordered of the door."""

    DRAIN = "door.drain"
    UNDRAIN = "door.undrain"
    SET_WEIGHT = "door.set_weight"


@dataclass(frozen=True, slots=True)
class Standing:
    """What has been ordered of one engine. `drained_by`: who drained it, None while it serves."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    drained_by: str | None = None
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Operation:
    """An order that was carried out. `at`: Unix seconds."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    key: str
    verb: OrderVerb
    engine: str
    by: str
    at: float
    before: Standing
    after: Standing


@dataclass(frozen=True, slots=True)
class Order:
    """What is asked: `weight` matters for SET_WEIGHT only."""

    key: str
    verb: OrderVerb
    engine: str
    by: str = WARDEN
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Orders:
    """All standings and the recent operations (oldest first), by name and by key."""

    engines: Mapping[str, Standing] = field(default_factory=lambda: MappingProxyType({}))
    operations: Mapping[str, Operation] = field(default_factory=lambda: MappingProxyType({}))

    def standing(self, engine: str) -> Standing:
        """What has been ordered of `engine`; the default when nothing has."""
        return self.engines.get(engine, Standing())


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an order was not carried out: one sentence."""

    says: str


def carry_out(orders: Orders, order: Order, at: float) -> tuple[Orders, Operation] | Refusal:
    """The orders after `order`, and what was done; or why it is refused. A key seen before gives its first operation."""
    seen = orders.operations.get(order.key)
    if seen is not None:
        if (seen.verb, seen.engine) == (order.verb, order.engine):
            return orders, seen
        return Refusal(f"key {order.key!r} was already used for {seen.verb} on {seen.engine}")
    before = orders.standing(order.engine)
    after = changed(before, order)
    if isinstance(after, Refusal):
        return after
    operation = Operation(order.key, order.verb, order.engine, order.by, at, before, after)
    operations = {**orders.operations, order.key: operation}
    for oldest in list(operations)[:-KEPT_OPERATIONS]:
        del operations[oldest]
    engines = {**orders.engines, order.engine: after}
    return Orders(MappingProxyType(engines), MappingProxyType(operations)), operation


def changed(standing: Standing, order: Order) -> Standing | Refusal:
    """What `order` makes of an engine's standing, or why it is refused: the rule of who may undo whose drain."""
    held = standing.drained_by
    by_another = held is not None and held != WARDEN and order.by == WARDEN
    match order.verb:
        case OrderVerb.DRAIN:
            return standing if by_another else replace(standing, drained_by=order.by)
        case OrderVerb.UNDRAIN if by_another:
            return Refusal(f"{order.engine} was drained by {held!r}; only a person may undo a person's drain")
        case OrderVerb.UNDRAIN:
            return replace(standing, drained_by=None)
        case OrderVerb.SET_WEIGHT if not LEAST_WEIGHT <= order.weight <= MOST_WEIGHT:
            return Refusal(
                f"weight {order.weight} is outside {LEAST_WEIGHT} to {MOST_WEIGHT}; to take an engine out, drain it"
            )
        case OrderVerb.SET_WEIGHT:
            return replace(standing, weight=order.weight)
