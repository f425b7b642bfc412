"""AlwaysLeader: the elector of a warden that has no fellows."""

import math
from collections.abc import Callable

from agent.election.mandate import Mandate, Standing


class AlwaysLeader:
    """Leads from the start to the end, in a term above all that the journal knows.

    So a second warden that was started over the same journal by mistake ends the first one's writing.
    """

    def __init__(self, identity: str = "the only warden", latest_term: Callable[[], int] = lambda: 0) -> None:
        self._identity = identity
        self._mandate: Mandate | None = Mandate(latest_term() + 1, math.inf, math.inf)
        self._trouble = ""

    @property
    def identity(self) -> str:
        return self._identity

    def mandate(self) -> Mandate | None:
        return self._mandate

    def standing(self) -> Standing:
        mandate = self._mandate
        if mandate is None:
            return Standing(leading=False, leader="", term=0, trouble=self._trouble)
        return Standing(leading=True, leader=self._identity, term=mandate.term)

    def resign(self, term: int, floor: int = 0) -> None:
        """Two that both believe to be alone cannot both go on: the older one stops until a person looks."""
        if self._mandate is not None and self._mandate.term == term:
            self._mandate = None
            self._trouble = (
                f"another warden writes to the same journal (term {floor}): stop one of them, or set `election`, then "
                "restart the other"
            )

    def close(self) -> None:
        self._mandate = None
