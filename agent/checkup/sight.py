"""What can be seen of each engine: which signals there are, under which names, and which detectors that leaves blind."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from detectors.catalogue import DETECTORS, Detector
from serving.telemetry.exposition import Samples
from serving.telemetry.registry import Job, Registry, SignalSpec
from serving.telemetry.selection import select


@dataclass(frozen=True, slots=True)
class Sight:
    """The signals of one engine: the exposition name that each is read from, by canonical name."""

    names: Mapping[str, str]

    def older(self, registry: Registry) -> dict[str, str]:
        """The signals that come under another than their newest name, and that name."""
        return {
            signal: name
            for signal, name in self.names.items()
            if signal in registry.signals and name != registry.signals[signal].names[0]
        }

    def absent(self, registry: Registry) -> tuple[str, ...]:
        """The engine's own signals that it does not have and should, in the order of the registry."""
        own = registry.of_job(Job.ENGINE)
        return tuple(signal for signal, spec in own.items() if signal not in self.names and not spec.optional)


@dataclass(frozen=True, slots=True)
class Hindered:
    """A detector that lacks signals. `blind`: it finds nothing without them; otherwise it is only less sure."""

    detector: Detector
    missing: tuple[str, ...]
    blind: bool


def sight_of(samples: Samples, specs: Mapping[str, SignalSpec]) -> Sight:
    """Which of the signals `specs` the samples of one engine carry, judged as the sources judge."""
    names: dict[str, str] = {}
    for signal, spec in specs.items():
        for name in spec.names:
            chosen = select(samples, {signal: spec.model_copy(update={"names": (name,)})})
            if chosen.values or chosen.histograms:
                names[signal] = name
                break
    return Sight(MappingProxyType(names))


def hindered(seen: Iterable[str], detectors: tuple[Detector, ...] = DETECTORS) -> tuple[Hindered, ...]:
    """The detectors that lack something when only the signals `seen` are there; special ones unless they lack all."""
    known = frozenset(seen)
    found = []
    for detector in detectors:
        needs, helpers = detector.needs - known, detector.helped_by - known
        if (needs and not detector.special) or (helpers and not needs):
            found.append(Hindered(detector, tuple(sorted(needs or helpers)), bool(needs)))
    return tuple(found)
