"""Sinks from settings."""

from agent.report.log import LogSink
from agent.report.notice import Sink
from agent.report.slack import SlackSink
from agent.report.webhook import WebhookSink
from agent.settings import SinkSettings
from serving.clock import Clock


def make_sinks(settings: SinkSettings, cell: str, clock: Clock) -> tuple[Sink, ...]:
    """Every sink that `settings` switch on. Raises FileError when the file of a secret cannot be used."""
    sinks: list[Sink] = [LogSink()] if settings.log else []
    if settings.slack is not None:
        slack = settings.slack
        sinks.append(SlackSink(slack.url(), cell, clock, slack.patience, slack.timeout))
    sinks += [
        WebhookSink(each.name, each.url, cell, clock, secret=each.signing_secret(), timeout=each.timeout)
        for each in settings.webhooks
    ]
    return tuple(sinks)
