"""Results of drills to people: a Slack message by the warden's own sink. Webhooks hear of drills from the journal."""

from collections.abc import Iterable
from pathlib import Path

from agent.drill import wording
from agent.drill.card import Card, Verdict
from agent.journal.port import Note
from agent.report.notice import Delivery, DeliveryStatus, Manner, Notice, NoticeKind, Sink
from agent.report.outlook import Outlook
from agent.report.sinks import make_sinks
from agent.report.story import Deed, Story
from agent.settings_file import load_settings
from serving.clock import Clock
from serving.fleet.fleet_file import FleetFile

_OUTLOOKS = {
    Verdict.PASSED: Outlook.REPAIRED,
    Verdict.FAILED: Outlook.GAVE_UP,
    Verdict.NOT_STEADY: Outlook.DISMISSED,
    Verdict.ABORTED: Outlook.GAVE_UP,
    Verdict.INTERRUPTED: Outlook.GAVE_UP,
}


def story_of(card: Card) -> Story:
    """The card as a story that sinks know how to tell."""
    began = card.injected_at if card.injected_at is not None else card.began_at
    found = min((row.detected_after for row in card.incidents if row.detected_after is not None), default=0.0)
    deeds = [
        Deed(row.injected_at, f"broke {row.target} by {row.fault}") for row in card.faults if row.injected_at is not None
    ]
    deeds += [Deed(card.ended_at, f"undid {row.fault} on {row.target}", row.undo) for row in card.faults if row.undo]
    todo = ["See `fleetwarden drill history` for the whole scorecard."]
    if not card.undone:
        todo.insert(0, "Something is not undone: run `fleetwarden drill recover`, and look at `fleetwarden fault list`.")
    failed = "Nobody counted the users." if card.failed_requests is None else f"{card.failed_requests:.0f} requests failed."
    return Story(
        incident=card.run,
        outlook=_OUTLOOKS[card.verdict],
        headline=wording.headline(card)[:1].upper() + wording.headline(card)[1:],
        what="A drill: something was broken on purpose, to see whether it is found and repaired.",
        since=began,
        noticed_at=began + found,
        ended_at=card.ended_at,
        why=(*card.reasons, *wording.course(card)),
        doubts=(),
        ruled_out=(),
        done=tuple(deeds),
        served=failed,
        cost="",
        todo=tuple(todo),
    )


def tell(card: Card, sinks: Iterable[Sink]) -> tuple[tuple[str, Delivery], ...]:
    """Tell those of `sinks` that hear stories, and close all; what became of each, by name."""
    notice = Notice(
        id=f"drill/{card.run}",
        seq=0,
        at=card.ended_at,
        kind=NoticeKind.STORY,
        headline=wording.headline(card),
        story=story_of(card),
        event=Note(card.ended_at, wording.FINISHED, wording.headline(card)),
    )
    told = []
    for sink in sinks:
        if sink.manner is Manner.STORIES:
            told.append((sink.name, sink.deliver(notice)))
        sink.close()
    return tuple(told)


def tell_slack(card: Card, state_directory: Path, clock: Clock) -> tuple[str, ...]:
    """Tell the Slack channel of the warden that looks after this directory, if it has one; what could not be told.

    Raises serving.yaml_file.FileError when the warden's settings cannot be read.
    """
    config = state_directory / "warden.yaml"
    if not config.exists():
        return ()
    settings = load_settings(config)
    if settings.sinks.slack is None:
        return ()
    only_slack = settings.sinks.model_copy(update={"log": False, "webhooks": []})
    cell = settings.cell_of(FleetFile.read(settings.fleet_file))
    told = tell(card, make_sinks(only_slack, cell, clock))
    return tuple(f"{name}: {each.says}" for name, each in told if each.status is not DeliveryStatus.DELIVERED)
