"""Who is told: well-formed URLs, secret files that can be read, and, only when asked for, one test message to each."""

import uuid

from agent.doctor.findings import Check, State, ok, problem, warning
from agent.journal.port import Note
from agent.report.notice import DeliveryStatus, Manner, Notice, NoticeKind, Sink
from agent.report.outlook import Outlook
from agent.report.sinks import make_sinks
from agent.report.story import Story
from agent.settings import SinkSettings, without_secrets
from serving.clock import Clock
from serving.yaml_file import FileError

TEST = "This is a test: somebody ran `fleetwarden doctor --send-test`. Nothing is wrong."


def examine(settings: SinkSettings, cell: str, clock: Clock, *, send: bool) -> list[Check]:
    """Every sink. With `send`, each is sent a message that says that it is a test."""
    checks = [*_slack(settings), *_webhooks(settings)]
    if not checks:
        checks.append(_nobody(settings))
    if send and not any(check.state is State.PROBLEM for check in checks):
        checks += _sent(settings, cell, clock)
    return checks


def _nobody(settings: SinkSettings) -> Check:
    where = "the log alone" if settings.log else "nobody"
    todo = "name sinks.slack or sinks.webhooks in the settings, so that somebody hears of it at night"
    return warning("sinks", "sinks", f"incidents are told to {where}", todo)


def _slack(settings: SinkSettings) -> list[Check]:
    if settings.slack is None:
        return []
    try:
        url = settings.slack.url()
    except (FileError, ValueError) as refused:
        return [problem("sinks.slack", "slack", str(refused), "write the webhook's URL into that file, on one line")]
    text = url.get_secret_value()
    if not text.startswith("https://"):
        says = f"{without_secrets(url)} is not https: the webhook's URL is a secret and would travel in the open"
        return [warning("sinks.slack", "slack", says, "use the https:// URL that Slack gave")]
    return [ok("sinks.slack", "slack", f"{without_secrets(url)} is well-formed; nothing was sent")]


def _webhooks(settings: SinkSettings) -> list[Check]:
    checks = []
    for webhook in settings.webhooks:
        check, subject = "sinks.webhook", webhook.name
        try:
            signed = webhook.signing_secret() is not None
        except FileError as refused:
            checks.append(problem(check, subject, str(refused), "write the shared secret into that file, on one line"))
            continue
        says = f"{without_secrets(webhook.url)} is well-formed, {'signed' if signed else 'unsigned'}; nothing was sent"
        if signed:
            checks.append(ok(check, subject, says))
        else:
            todo = "name signing_secret_file, if its receiver checks signatures"
            checks.append(warning(check, subject, f"{says}. Its receiver cannot tell who sends", todo))
    return checks


def _sent(settings: SinkSettings, cell: str, clock: Clock) -> list[Check]:
    checks = []
    for sink in make_sinks(settings.model_copy(update={"log": False}), cell, clock):
        try:
            delivery = sink.deliver(_notice(sink, clock.now()))
        finally:
            sink.close()
        if delivery.status is DeliveryStatus.DELIVERED:
            checks.append(ok("sinks.test", sink.name, f"took a test message ({delivery.says})"))
        else:
            todo = "check its URL and secret; a wrong URL is refused for good, an unreachable one is tried again"
            checks.append(problem("sinks.test", sink.name, f"did not take a test message: {delivery.says}", todo))
    return checks


def _notice(sink: Sink, now: float) -> Notice:
    key = f"doctor-test-{uuid.uuid4()}"
    if sink.manner is Manner.TRANSITIONS:
        return Notice(key, 0, now, NoticeKind.NOTE, TEST, event=Note(now, "doctor.test", TEST))
    told = Story(
        incident="doctor-test",
        outlook=Outlook.DISMISSED,
        headline="Test message of fleetwarden",
        what=TEST,
        since=now,
        noticed_at=now,
        ended_at=now,
        why=(),
        doubts=(),
        ruled_out=(),
        done=(),
        served="Nothing is known to be wrong.",
        cost="",
        todo=("Nothing.",),
    )
    return Notice(key, 0, now, NoticeKind.STORY, TEST, story=told)
