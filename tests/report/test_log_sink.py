"""The log as a sink: one line a transition with keys that stay."""

import pytest
import structlog
from told_lives import NIGHT, repaired_hang

from agent.journal.port import Entry, Note
from agent.report import notices
from agent.report.log import LogSink
from agent.report.notice import DeliveryStatus
from agent.report.sinks import make_sinks
from agent.settings import SinkSettings, SlackSettings, WebhookSettings
from serving.clock import SystemClock
from serving.yaml_file import FileError


def logged(entry: Entry, history: tuple[Entry, ...]) -> dict[str, object]:
    with structlog.testing.capture_logs() as lines:
        assert LogSink().deliver(notices.transition(entry, history, lambda _: "")).status is DeliveryStatus.DELIVERED
    (line,) = lines
    return dict(line)


def test_a_transition_is_one_line_that_names_incident_cause_entity_and_state() -> None:
    entries = tuple(Entry(seq, event) for seq, event in enumerate(repaired_hang().events, 1))
    line = logged(entries[-1], entries)
    assert (
        line.items()
        >= {
            "event": "incident.ended",
            "log_level": "info",
            "incident": "inc-7",
            "cause": "engine.hung",
            "entity": "engine/sim-2",
            "state": "resolved",
            "seq": len(entries),
        }.items()
    )
    assert str(line["says"]).startswith("resolved (repaired): for 20 s")


def test_a_note_is_one_line_too() -> None:
    line = logged(Entry(5, Note(NIGHT, "switch.on", "pause was turned on by maria")), ())
    assert line["event"] == "note"
    assert line["says"] == "switch.on: pause was turned on by maria"


def test_sinks_are_made_as_the_settings_say() -> None:
    settings = SinkSettings(
        slack=SlackSettings(webhook_url="https://hooks.slack.com/services/x"),  # type: ignore[arg-type]
        webhooks=[WebhookSettings(name="desk", url="https://desk/x")],  # type: ignore[arg-type]
    )
    sinks = make_sinks(settings, "local", SystemClock())
    assert [sink.name for sink in sinks] == ["log", "slack", "webhook:desk"]
    for sink in sinks:
        sink.close()


def test_a_missing_secret_file_is_said_before_anything_starts(tmp_path: object) -> None:
    settings = SinkSettings(slack=SlackSettings(webhook_url_file=f"{tmp_path}/none"))  # type: ignore[arg-type]
    with pytest.raises(FileError, match="no such file"):
        make_sinks(settings, "local", SystemClock())
