"""The log as a sink: one structured line a transition, with stable keys."""

import math

import structlog

from agent.report.notice import Delivery, DeliveryStatus, Manner, Notice


class LogSink:
    """Every transition as a structlog line: warning where a person is needed, otherwise info."""

    name = "log"
    manner = Manner.TRANSITIONS
    patience = math.inf

    def __init__(self, logger: structlog.typing.FilteringBoundLogger | None = None) -> None:
        self._log = logger if logger is not None else structlog.get_logger("fleetwarden.incident")

    def deliver(self, notice: Notice) -> Delivery:
        incident, story = notice.incident, notice.story
        line: dict[str, object] = {"seq": notice.seq, "at": notice.at, "says": notice.headline}
        if incident is not None:
            line |= {
                "incident": incident.id,
                "cause": incident.cause,
                "entity": str(incident.entity),
                "state": incident.state.value,
            }
        write = self._log.warning if story is not None and story.needs_person else self._log.info
        write(f"incident.{notice.kind}" if incident is not None else "note", **line)
        return Delivery(DeliveryStatus.DELIVERED)

    def close(self) -> None:
        """The log is not this sink's to close."""
