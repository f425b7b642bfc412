"""Where the local fleet lives on disk when nobody says otherwise."""

import os
from pathlib import Path


def default_state_directory() -> Path:
    """`$XDG_STATE_HOME/fleetwarden/local`, or `~/.local/state/fleetwarden/local`. Not created here.

    A relative XDG_STATE_HOME is ignored, as the XDG base directory specification asks.
    """
    given = os.environ.get("XDG_STATE_HOME", "")
    base = Path(given) if Path(given).is_absolute() else Path.home() / ".local" / "state"
    return base / "fleetwarden" / "local"
