"""One name for a fault on every fleet: what a fault of the local catalogue is in virtual time.

How long a load goes on means the same everywhere. How much of it there must be (requests a second, lengths) is in the size
of the local engines, which compute on CPUs; engines in virtual time are those of data centres, so that their own catalogue
says how much it takes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from serving.faults.catalogue import FaultUsageError, fault_named
from serving.fleet.entity import EntityKind
from serving.virtual.faults.catalogue import DECOYS, FAULTS
from serving.virtual.faults.crowds import CROWD_KINDS
from serving.virtual.faults.kind import Kind, Parameters

Numbers = Mapping[str, float]
KINDS: tuple[Kind, ...] = (*FAULTS.values(), *DECOYS.values(), *CROWD_KINDS)


@dataclass(frozen=True, slots=True)
class Meant:
    """A kind with its parameters; `ends_after`: seconds after which it is over by itself (None: only by its undo)."""

    kind: Kind
    parameters: Parameters
    ends_after: float | None = None


@dataclass(frozen=True, slots=True)
class _Local:
    """What a local fault is called in virtual time, and which of its own parameters it makes of the local ones."""

    kind: str
    parameters: Callable[[Numbers], Numbers] = field(default=lambda _given: {})


def _rate(given: Numbers) -> Numbers:
    return {"rps": given["rps"]}


LOCAL: Mapping[str, _Local] = MappingProxyType(
    {
        "worker-kill": _Local("engine-kill"),
        "api-kill": _Local("engine-kill"),
        # Stopped for a share of the time, everything takes 1 / (1 - share) times as long.
        "slow-worker": _Local("slow-engine", lambda given: {"factor": 1.0 / (1.0 - given["share"])}),
        "gc-stall": _Local("gc-stall", dict),
        "prefill-flood": _Local("prefill-flood"),
        "kv-flood": _Local("kv-flood"),
        "surge": _Local("surge"),
        "hot-expert": _Local("hot-expert"),
        "endless-generation": _Local("endless-generation", lambda given: {"most": given["max_requests"]}),
        "impatient-clients": _Local("impatient-clients", _rate),
        "mass-cancel": _Local("mass-cancel", _rate),
    }
)


def meant(name: str, given: Numbers, on: EntityKind) -> Meant:
    """The fault of this name on a thing of this kind, with parameters as the local or as the virtual catalogue names them.

    Where they could be either's they are the local ones. Of the front door, what happens to a model happens to all of its
    models. Raises FaultUsageError when there is no such fault, it does not happen to such a thing, or a parameter is
    neither catalogue's.
    """
    own = _own(name, on)
    if name in LOCAL and (own is None or not set(given) - set(fault_named(name).parameters)):
        bound = fault_named(name).bind(given)
        kind = _own(LOCAL[name].kind, on)
        assert kind is not None  # noqa: S101 - every name in LOCAL has a kind: held by a test
        return Meant(_fitting(kind, on), kind.parameters(LOCAL[name].parameters(bound)), bound.get("seconds"))
    if own is None:
        names = sorted({kind.name for kind in KINDS} | set(LOCAL))
        raise FaultUsageError(f"there is no fault {name!r} in virtual time; faults: {', '.join(names)}")
    try:
        return Meant(_fitting(own, on), own.parameters(given))
    except ValueError as refused:
        raise FaultUsageError(str(refused)) from None


def _a(kind: EntityKind) -> str:
    return f"{'an' if kind is EntityKind.ENGINE else 'a'} {kind}"


def _own(name: str, on: EntityKind) -> Kind | None:
    """The kind of that name, of several the one that happens to such a thing."""
    named = [kind for kind in KINDS if kind.name == name]
    return next((kind for kind in named if kind.on is on), named[0] if named else None)


def _fitting(kind: Kind, on: EntityKind) -> Kind:
    if kind.on is on or (kind.on is EntityKind.MODEL and on is EntityKind.GATEWAY):
        return kind
    raise FaultUsageError(f"{kind.name} happens to {_a(kind.on)} and not to {_a(on)}; say `target: any {kind.on}`")
