"""Orders to the front door over its admin routes: drain, undrain, weight.

The door keeps the operation keys, so the same key twice is one operation even when this process died in between. Who may
undo whose drain is the door's own rule (serving.gateway.orders), asked here beforehand and enforced there.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from urllib.parse import quote

from actuators.action import Action, Outcome, OutcomeStatus, Scalar, VerbSpec
from actuators.binding import bind, methods_of, verb, verbs_of, with_defaults
from actuators.http_exchange import Answer, Exchange, HttpClient, NoAnswer, NotSent
from serving.fleet.entity import EntityKind
from serving.gateway.orders import WARDEN, Order, OrderVerb, Refusal, Standing, changed

_OK, _NOT_FOUND = 200, 404
# The door answers these only when it has changed nothing.
_REFUSED = frozenset({400, 401, 404, 405, 409, 413})
_NOT_CARRIED_OUT = 500
_ROUTE = {OrderVerb.DRAIN: "drain", OrderVerb.UNDRAIN: "undrain", OrderVerb.SET_WEIGHT: "weight"}

State = Mapping[str, Scalar]


@dataclass(frozen=True, slots=True)
class Seat:
    """One engine at the door: who drained it (None: nobody), and how many requests it has in flight there."""

    drained_by: str | None
    in_flight: int


class DoorActuator:
    """`door.*` verbs on engines. `by` signs the orders; `token` is the admin routes' bearer token, if they need one.

    `called` tells what the door calls an engine, where that is not the engine's own name.
    """

    def __init__(
        self,
        admin_url: str,
        token: str | None = None,
        timeout_s: float = 5.0,
        by: str = WARDEN,
        called: Callable[[str], str] = str,
    ) -> None:
        self._url = admin_url.rstrip("/")
        self._by = by
        self._called = called
        self._http = HttpClient(timeout_s, {"Authorization": f"Bearer {token}"} if token else {})
        self._specs = verbs_of(self)
        self._makers = methods_of(self)

    @property
    def verbs(self) -> Mapping[str, VerbSpec]:
        return self._specs

    @verb("door.drain", summary="Send the engine nothing new", undo="door.undrain", takes_capacity=True)
    def drain(self, engine: str, key: str) -> Order:
        """The order for door.drain."""
        return Order(key, OrderVerb.DRAIN, engine, self._by)

    @verb("door.undrain", summary="Send the engine requests again", undo="door.drain", recovery=True)
    def undrain(self, engine: str, key: str) -> Order:
        """The order for door.undrain."""
        return Order(key, OrderVerb.UNDRAIN, engine, self._by)

    @verb("door.set_weight", summary="Change the engine's share of new requests", undo="door.set_weight")
    def set_weight(self, engine: str, key: str, *, weight: float) -> Order:
        """The order for door.set_weight."""
        return Order(key, OrderVerb.SET_WEIGHT, engine, self._by, weight)

    def rehearse(self, action: Action) -> Outcome:
        order = self._order(action, "rehearsal")
        return order if isinstance(order, Outcome) else self._foreseen(order)

    def apply(self, action: Action, key: str) -> Outcome:
        order = self._order(action, key)
        if isinstance(order, Outcome):
            return order
        earlier = self._looked_up(order)
        if earlier.status is OutcomeStatus.DONE or earlier.permanent:
            return earlier
        if earlier.status is OutcomeStatus.UNKNOWN:
            return _failed(f"nothing was sent: {earlier.detail}")
        foreseen = self._foreseen(order)
        if foreseen.status is OutcomeStatus.FAILED:
            return foreseen
        return self._ordered(order, foreseen)

    def look_up(self, action: Action, key: str) -> Outcome:
        order = self._order(action, key)
        return order if isinstance(order, Outcome) else self._looked_up(order)

    def name_of(self, engine: str) -> str:
        """What the door calls an engine."""
        return self._called(engine)

    def seats(self) -> Mapping[str, Seat] | None:
        """Every engine that the door knows, as it stands there now; None when the door cannot be asked."""
        answer = self._http.exchange("GET", f"{self._url}/admin/engines")
        if not isinstance(answer, Answer) or answer.status != _OK or not isinstance(answer.content, list):
            return None
        found: dict[str, Seat] = {}
        for row in answer.content:
            standing = _standing(row) if isinstance(row, dict) else None
            if standing is not None:
                in_flight = row.get("in_flight")
                found[str(row.get("name"))] = Seat(standing.drained_by, in_flight if isinstance(in_flight, int) else 0)
        return MappingProxyType(found)

    def _order(self, action: Action, key: str) -> Order | Outcome:
        """The order an action stands for, or the failure that says why there is none."""
        spec = self._specs.get(action.verb)
        if spec is None:
            return _failed(f"{action.verb!r} is not an order to the front door", permanent=True)
        if action.target.kind is not EntityKind.ENGINE:
            return _failed(f"{action.verb} works on engines, not on {action.target}", permanent=True)
        problems = bind(spec, action.arguments)
        if problems:
            return _failed("; ".join(problems), permanent=True)
        name = self._called(action.target.name)
        order: Order = self._makers[action.verb](name, key, **with_defaults(spec, action.arguments))
        return order

    def _foreseen(self, order: Order) -> Outcome:
        """What the order would do to the live state, without doing it."""
        standing = self._standing(order.engine)
        if isinstance(standing, Outcome):
            return standing
        after = changed(standing, order)
        before = _state(standing)
        if isinstance(after, Refusal):
            return Outcome(OutcomeStatus.FAILED, after.says, before=before, after=before, permanent=True)
        return _done(order, before, _state(after))

    def _standing(self, engine: str) -> Standing | Outcome:
        """The live state of one engine at the door, or the failure to read it."""
        answer = self._http.exchange("GET", f"{self._url}/admin/engines")
        if not isinstance(answer, Answer):
            return _failed(f"the front door's state cannot be read: {answer.says}")
        if answer.status != _OK or not isinstance(answer.content, list):
            return _failed(f"the front door's state cannot be read: it answered {answer.says}")
        rows = [row for row in answer.content if isinstance(row, dict)]
        for row in rows:
            if row.get("name") == engine:
                return _standing(row) or _failed(f"the front door's answer about {engine} cannot be understood: {row}")
        known = ", ".join(str(row.get("name")) for row in rows) or "none"
        return _failed(f"the front door knows no engine {engine!r}; it knows {known}", permanent=True)

    def _ordered(self, order: Order, foreseen: Outcome) -> Outcome:
        """Send the order and read what became of it."""
        body: dict[str, object] = {"key": order.key, "by": order.by}
        if order.verb is OrderVerb.SET_WEIGHT:
            body["weight"] = order.weight
        url = f"{self._url}/admin/engines/{quote(order.engine, safe='')}/{_ROUTE[order.verb]}"
        answer = self._http.exchange("PUT", url, body=body)
        if isinstance(answer, NotSent):
            return Outcome(OutcomeStatus.FAILED, f"not sent: {answer.says}", before=foreseen.before, after=foreseen.before)
        if isinstance(answer, Answer):
            if answer.status == _OK:
                return _recorded(order, answer) or _unknown(f"the front door's answer cannot be understood: {answer.says}")
            if "error" in answer.fields and answer.status in (*_REFUSED, _NOT_CARRIED_OUT):
                permanent = answer.status in _REFUSED
                return Outcome(OutcomeStatus.FAILED, answer.says, foreseen.before, foreseen.before, permanent=permanent)
        return _unknown(f"{order.verb} of {order.engine}: {answer.says}")

    def _looked_up(self, order: Order) -> Outcome:
        """What the door knows of the operation's key."""
        answer: Exchange = self._http.exchange("GET", f"{self._url}/admin/operations/{quote(order.key, safe='')}")
        if isinstance(answer, NotSent | NoAnswer):
            return _unknown(f"the front door cannot be asked: {answer.says}")
        if answer.status == _OK:
            return _recorded(order, answer) or _unknown(f"the front door's answer cannot be understood: {answer.says}")
        if answer.status == _NOT_FOUND and "error" in answer.fields:
            return _failed(f"the front door has no operation with key {order.key!r}: it never happened")
        return _unknown(f"the front door answered {answer.says}")


def _state(standing: Standing) -> State:
    by = standing.drained_by
    return MappingProxyType({"drained": by is not None, "drained_by": by, "weight": standing.weight})


def _standing(row: Mapping[str, object]) -> Standing | None:
    """A standing as the door writes it, or None when the row is not one."""
    by, weight = row.get("drained_by"), row.get("weight")
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not isinstance(by, str | None):
        return None
    return Standing(by, float(weight))


def _recorded(order: Order, answer: Answer) -> Outcome | None:
    """The outcome of an operation as the door recorded it, or None when the record cannot be understood."""
    fields = answer.fields
    before, after = fields.get("before"), fields.get("after")
    if fields.get("key") != order.key or not isinstance(before, dict) or not isinstance(after, dict):
        return None
    if (fields.get("verb"), fields.get("engine")) != (order.verb, order.engine):
        used = f"{fields.get('verb')} of {fields.get('engine')}"
        return _failed(f"key {order.key!r} was already used for {used}", permanent=True)
    standings = _standing(before), _standing(after)
    if standings[0] is None or standings[1] is None:
        return None
    return _done(order, _state(standings[0]), _state(standings[1]))


def _done(order: Order, before: State, after: State) -> Outcome:
    if before == after:
        return Outcome(
            OutcomeStatus.DONE, f"{order.engine} already is as {order.verb} wants it: {_words(after)}", before, after
        )
    return Outcome(OutcomeStatus.DONE, f"{order.engine}: from {_words(before)} to {_words(after)}", before, after)


def _words(state: State) -> str:
    serving = f"drained by {state['drained_by']}" if state["drained"] else "in rotation"
    return f"{serving}, weight {state['weight']:g}"


def _failed(says: str, *, permanent: bool = False) -> Outcome:
    return Outcome(OutcomeStatus.FAILED, says, permanent=permanent)


def _unknown(says: str) -> Outcome:
    return Outcome(OutcomeStatus.UNKNOWN, says)
