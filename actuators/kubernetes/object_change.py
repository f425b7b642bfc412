"""Changing one object: read it, plan on what was read, write only if it is still the same, and write down that it was us.

The plan is a pure function of the object. The write carries the resourceVersion that the plan was made on, so whatever
anybody else changed in between makes the server refuse it; then the object is read and planned anew. The record of the
operation goes with the change in one write: a look-up after a crash tells for sure whether it happened.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from actuators.action import Outcome
from actuators.kubernetes.access import Access
from actuators.kubernetes.events import Note, tell
from actuators.kubernetes.ledger import OPERATIONS, Record, entered, record_of
from actuators.kubernetes.merge_patch import difference
from actuators.kubernetes.outcomes import Facts, done, failed, in_doubt, of_error, unknown
from serving.kubernetes.cluster_error import CONFLICT, TOO_MANY, ClusterError

Json = dict[str, Any]
TURNS = 6  # kubelets and controllers write to the same objects all the time; so many writes in a row are no chance
REHEARSAL = "rehearsal"


@dataclass(frozen=True, slots=True)
class Change:
    """What an object is to become. `wanted` is the whole of it; `says` tells a person what was done."""

    wanted: Mapping[str, Any]
    before: Facts
    after: Facts
    says: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Why nothing is to be done to an object."""

    says: str
    facts: Facts
    permanent: bool = False


Plan = Callable[[Json, str], Change | Refused]
"""From the object as read and the operation's key to what it is to become. Must not alter the object."""


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """The operation `verb` on the object at `path`, called `name` in messages."""

    access: Access
    verb: str
    path: str
    name: str
    plan: Plan

    def rehearse(self) -> Outcome:
        live = self._read()
        planned = self.plan(copy.deepcopy(live), REHEARSAL)
        if isinstance(planned, Refused):
            return failed(planned.says, planned.facts, permanent=planned.permanent)
        try:
            self._write(live, planned, REHEARSAL, 0, dry_run=True)
        except ClusterError as error:
            return of_error(f"change {self.name}", error, planned.before, read_only=True)
        return done(f"would do: {planned.says}", planned.before, planned.after)

    def apply(self, key: str) -> Outcome:
        waited = 0.0
        for _ in range(TURNS):
            live = self._read()
            known = self._known(live, key)
            if known is not None:
                return known
            planned = self.plan(copy.deepcopy(live), key)
            if isinstance(planned, Refused):
                return failed(planned.says, planned.facts, permanent=planned.permanent)
            term = self.access.term()
            if isinstance(term, Outcome):
                return term
            try:
                self._write(live, planned, key, term)
            except ClusterError as error:
                if error.status == CONFLICT:
                    continue
                if error.status == TOO_MANY:
                    so_far = self.access.wait(error.retry_after, waited)
                    if so_far is not None:
                        waited = so_far
                        continue
                return self._settled(key, error, planned.before)
            tell(self.access, Note(live, self.verb, planned.says, key))
            return done(planned.says, planned.before, planned.after)
        return failed(f"{self.name} was changed by others {TURNS} times in a row; nothing was written")

    def look_up(self, key: str) -> Outcome:
        known = self._known(self._read(), key)
        return failed(f"{self.name} bears no operation {key!r}: it never happened") if known is None else known

    def _read(self) -> Json:
        return self.access.client.get(self.path, deadline_s=self.access.deadline_s)

    def _known(self, live: Json, key: str) -> Outcome | None:
        """The outcome of this operation when the object bears it already."""
        record = record_of(live, key)
        if record is None:
            return None
        if record.verb != self.verb:
            return failed(f"the key {key!r} was already used for {record.verb} on {self.name}", permanent=True)
        return done(record.says, record.before, record.after)

    def _write(self, live: Json, change: Change, key: str, term: int, *, dry_run: bool = False) -> None:
        record = Record(
            *(key, self.verb, change.says, self.access.client.server_now(), term), dict(change.before), dict(change.after)
        )
        patch = difference(live, change.wanted)
        metadata = patch.setdefault("metadata", {})
        metadata["resourceVersion"] = live["metadata"]["resourceVersion"]
        metadata["uid"] = live["metadata"]["uid"]
        metadata.setdefault("annotations", {})[OPERATIONS] = entered(live, record)
        self.access.client.patch(self.path, patch, dry_run=dry_run, deadline_s=self.access.deadline_s)

    def _settled(self, key: str, error: ClusterError, before: Facts) -> Outcome:
        """What became of a write that was not answered with yes: asked of the object itself where that may tell."""
        outcome = of_error(f"change {self.name}", error, before)
        if not in_doubt(error):
            return outcome
        try:
            known = self._known(self._read(), key)
        except ClusterError as unread:
            return unknown(f"{outcome.detail}; and {self.name} cannot be read: {unread.says}", before)
        return outcome if known is None else known  # a write under way may still arrive: without a record nobody knows
