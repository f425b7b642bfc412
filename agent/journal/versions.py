"""The version of a journal's tables: creating them, bringing them up to date, and refusing what is too new."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect

from agent.journal.port import JournalError

_MIGRATIONS = Path(__file__).with_name("migrations")


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def newest() -> str:
    """The version this program writes."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    if head is None:
        raise JournalError(f"no migrations are installed in {_MIGRATIONS}: install Fleetwarden again")
    return head


def bring_up_to_date(connection: Connection, location: str) -> None:
    """Create the tables, or migrate them to the newest version, inside the connection's transaction."""
    found = _found(connection, location)
    if found is None:
        others = inspect(connection).get_table_names()
        if others:
            raise JournalError(
                f"{location} is a database of something else (it holds {', '.join(others[:3])}): name another file; "
                "nothing was changed"
            )
    if found != newest():
        command.upgrade(_config(connection), "head")


def require_up_to_date(connection: Connection, location: str) -> None:
    """Refuse tables that are not of the newest version."""
    found = _found(connection, location)
    if found is None:
        raise JournalError(f"{location} is not a journal of Fleetwarden: name its state directory; nothing was changed")
    if found != newest():
        raise JournalError(
            f"the journal {location} has version {found}, this program needs {newest()}: restart the warden with this "
            "version to bring it up to date; nothing was changed"
        )


def _found(connection: Connection, location: str) -> str | None:
    found = MigrationContext.configure(connection).get_current_revision()
    known = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
    if found is not None and found not in known:
        raise JournalError(
            f"the journal {location} has version {found}, which a newer Fleetwarden wrote; this one knows up to {newest()}: "
            "use the newer one, or another state directory; nothing was changed"
        )
    return found
