"""The names of engines in a cluster, kept in the journal: a warden that takes over calls each by the name it had before."""

from collections.abc import Callable, Mapping

from agent.journal.port import Journal


class KeptNames:
    """A SlotMemory. `leads` tells whether this warden is the one that writes."""

    def __init__(self, journal: Journal, leads: Callable[[], bool]) -> None:
        self._journal = journal
        self._leads = leads

    @property
    def ours(self) -> bool:
        return self._leads()

    def load(self) -> Mapping[str, int]:
        return self._journal.engine_slots()

    def keep(self, numbers: Mapping[str, int]) -> None:
        self._journal.keep_engine_slots(numbers)
