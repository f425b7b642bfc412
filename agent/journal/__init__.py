"""The journal: the record of every incident event, operation and switch, from which a restarted warden goes on.

Does not belong here: what an event means (agent.incident), how it is told to people (agent.report).
"""

from agent.journal.memory import MemoryJournal
from agent.journal.port import (
    PAUSE,
    Answer,
    DamagedError,
    Entry,
    Journal,
    JournalError,
    KeyTakenError,
    Note,
    OutOfOrderError,
    Switch,
)
from agent.journal.stored import StoredJournal, open_journal

__all__ = [
    "PAUSE",
    "Answer",
    "DamagedError",
    "Entry",
    "Journal",
    "JournalError",
    "KeyTakenError",
    "MemoryJournal",
    "Note",
    "OutOfOrderError",
    "StoredJournal",
    "Switch",
    "open_journal",
]
