"""A sink that remembers what it was told and answers as scripted; once the script is over, it takes everything."""

from dataclasses import dataclass, field

from agent.report.notice import Delivery, DeliveryStatus, Manner, Notice

LATER = Delivery(DeliveryStatus.RETRY_LATER, "HTTP 503")
REFUSED = Delivery(DeliveryStatus.FAILED, "HTTP 404")


@dataclass
class ScriptedSink:
    name: str = "scripted"
    manner: Manner = Manner.TRANSITIONS
    patience: float = 120.0
    script: list[Delivery | Exception] = field(default_factory=list)
    heard: list[Notice] = field(default_factory=list)
    asked: int = 0
    closed: bool = False

    def deliver(self, notice: Notice) -> Delivery:
        self.asked += 1
        answer = self.script.pop(0) if self.script else Delivery(DeliveryStatus.DELIVERED)
        if isinstance(answer, Exception):
            raise answer
        if answer.status is DeliveryStatus.DELIVERED:
            self.heard.append(notice)
        return answer

    def close(self) -> None:
        self.closed = True
