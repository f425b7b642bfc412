"""The telemetry of a fleet in virtual time, and how it can go wrong."""

from dataclasses import dataclass, field


@dataclass
class Pipeline:
    """What may be wrong with telemetry itself.

    `gone`: signals that nobody finds under their name any more; `late`: seconds; `down`: the source answers nothing;
    `unscraped` and `doubled`: engines by row.
    """

    gone: set[str] = field(default_factory=set)
    late: float = 0.0
    down: bool = False
    unscraped: set[int] = field(default_factory=set)
    doubled: set[int] = field(default_factory=set)
