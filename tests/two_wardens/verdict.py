"""What the record says: of the API server (its audit log), of the cluster as it is, of the journal. Pure functions."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from control_plane.audit import AuditEvent

from agent.journal.port import Entry
from two_wardens.stamp import FENCE, PREFIX, TERM


@dataclass(frozen=True, slots=True)
class NodeWrite:
    """One write of a warden to a node that reached the API server.

    `stamp`: what it was to do, empty for the mark of a look-up. `key`: of the operation it belonged to.
    """

    at: float
    node: str
    term: int
    stamp: str
    code: int
    key: str = ""

    @property
    def stored(self) -> bool:
        """Whether the API server carried it out."""
        return self.code < 300


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found; the first four must be empty.

    `doubles`: writes that were stored more than once. `overlaps`: a write of an earlier term that was stored after one of a
    later. `journal_overlaps`: the same in the journal. `lost`: done by the journal and not in the world, or the reverse.
    `altered`: the world bears it from another operation than the one whose write was stored.
    `late`: writes of an earlier term that reached the API server after one of a later, and were not stored.
    """

    doubles: tuple[str, ...]
    overlaps: tuple[str, ...]
    journal_overlaps: tuple[str, ...]
    lost: tuple[str, ...]
    altered: tuple[str, ...]
    stored: int
    fences: int
    late: int

    @property
    def clean(self) -> bool:
        """Whether nothing was done twice, crossed or lost."""
        return not (self.doubles or self.overlaps or self.journal_overlaps or self.lost or self.altered)


def node_writes(audit: Iterable[AuditEvent], nodes: frozenset[str]) -> list[NodeWrite]:
    """The wardens' writes to these nodes, in the order of arrival."""
    found = []
    for event in audit:
        if event.verb != "patch" or event.resource != "nodes" or event.name not in nodes or not isinstance(event.body, dict):
            continue
        annotations = event.body.get("metadata", {}).get("annotations", {})
        if TERM in annotations:
            stamps = [name for name in annotations if name.startswith(PREFIX) and name not in {TERM, FENCE}]
            stamp = "".join(stamps)
            key = annotations.get(stamp, "")
            found.append(NodeWrite(event.at, event.name, int(annotations[TERM]), stamp, event.code, key))
    return sorted(found, key=lambda write: write.at)


def judge(writes: list[NodeWrite], entries: Iterable[Entry], world: Mapping[str, str], done: Iterable[str]) -> Verdict:
    """`world`: the stamps that the nodes bear now, each with its operation's key. `done`: those made by the journal."""
    stored = [write for write in writes if write.stored]
    counts: Mapping[str, int] = Counter(write.stamp for write in stored if write.stamp)
    latest, late = 0, 0
    overlaps = []
    for write in writes:
        if write.term < latest and write.stored:
            overlaps.append(f"term {write.term} wrote {write.stamp or 'a fence'} at {write.at:.3f} after term {latest}")
        late += write.term < latest and not write.stored
        latest = max(latest, write.term) if write.stored else latest
    terms = [(entry.seq, entry.term) for entry in entries if entry.term is not None]
    crossed = [
        f"entry {seq} of term {term} follows one of term {prior}"
        for (_, prior), (seq, term) in pairwise(terms)
        if term < prior
    ]
    return Verdict(
        doubles=tuple(sorted(f"{stamp} was stored {count} times" for stamp, count in counts.items() if count > 1)),
        overlaps=tuple(overlaps),
        journal_overlaps=tuple(crossed),
        lost=tuple(sorted(set(done) ^ set(world))),
        altered=tuple(sorted(write.stamp for write in stored if write.stamp and world.get(write.stamp) != write.key)),
        stored=sum(counts.values()),
        fences=sum(not write.stamp for write in stored),
        late=late,
    )
