"""Office: beginning and ending to lead, as the rest of the warden sees it.

A mandate is not enough: the journal must know the term, so that nobody writes in an earlier one any more, before anything is
decided. And who is told of a later term by the journal leads no more, whatever the elector says.
"""

from dataclasses import dataclass

import structlog

from actuators.action import Scalar
from agent.election.mandate import Elector, Standing
from agent.journal.port import DeposedError, Journal, Note


@dataclass(slots=True)
class Office:
    """Whether this warden acts now. `announces`: the note's sentence when it begins to, such as which version runs where."""

    elector: Elector
    journal: Journal
    announces: str
    _term: int = 0

    def enter(self, now: float) -> bool:
        """Whether this warden leads; at the begin of a term, the journal is told first. Raises JournalError.

        What a later leader does then rests on the journal alone, so nothing need be handed over.
        """
        mandate = self.elector.mandate()
        if mandate is None:
            self._term = 0
            return False
        if mandate.term != self._term:
            self.journal.begin_term(mandate.term, self.elector.identity, now)
            facts: dict[str, Scalar] = {"term": mandate.term, "by": self.elector.identity}
            self.journal.note(Note(now, "loop.started", self.announces, facts))
            self._term = mandate.term
        return True

    def holds(self) -> bool:
        """Whether this warden leads in a term that the journal knows; asks nobody."""
        mandate = self.elector.mandate()
        return mandate is not None and mandate.term == self._term

    def deposed(self, error: DeposedError) -> None:
        """Somebody writes in a later term: stop at once."""
        log = structlog.get_logger("fleetwarden.election")
        log.warning("election.deposed", identity=self.elector.identity, says=str(error))
        mandate = self.elector.mandate()
        if mandate is not None and mandate.term < error.term:
            self.elector.resign(mandate.term, error.term)
        self._term = 0

    def standing(self) -> Standing:
        """How things stand; leading means that the journal knows the term, too."""
        told = self.elector.standing()
        if told.leading and not self.holds():
            return Standing(leading=False, leader=told.leader, term=told.term, trouble=told.trouble or "takes over just now")
        return told
