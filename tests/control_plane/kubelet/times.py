"""Times as the API writes them."""

from datetime import UTC, datetime


def stamp(seconds: float) -> str:
    """Unix seconds as the API writes times."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_stamp(seconds: float) -> str:
    """The same with microseconds, as leases have them."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
