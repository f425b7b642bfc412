"""`fleetwarden replay`: what the warden would have seen, called and done, over recorded telemetry."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.text import Text
from typer.core import TyperCommand

from agent.checkup.cadence import for_cadence
from agent.cli.replay_tables import Steps, fault_table, incident_table, progress, totals_line
from agent.cli.runbook import shipped_verbs
from agent.cli.store_range import Asked, End, Match, TokenFile, open_range
from agent.cli.tables import fail, print_all
from agent.loop import Minds, StepReport
from agent.replay.hands import Bystander
from agent.replay.judge import Judgement, judge
from agent.replay.page import Told, page
from agent.replay.past import PrometheusRange
from agent.replay.play import Played, Recorded, play
from agent.replay.rows import Row, rows
from agent.replay.traces import Traces
from agent.replay.truth import faults_in
from agent.report.layout import date_time
from agent.report.wording import duration
from agent.settings import WardenSettings
from agent.settings_file import load_settings
from agent.wiring import make_minds
from detectors.catalogue import detect_all
from detectors.parameters import load_parameters
from runbooks.runbook import Autonomy
from serving.clock import SystemClock
from serving.fleet.fleet_file import FleetFile
from serving.telemetry.promql import PromqlError
from serving.telemetry.recording import EVENTS, Happening, Recording, RecordingError, read_labels

LABELS = "--labels"
OWN = "events.json in the folder"
FRESH_READINGS = 3.0  # readings within which a sample still says something about now


class ReplayCommand(TyperCommand):
    """Takes `--labels` with or without a value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given = list(args)
        for place, word in enumerate(args):
            if word == LABELS and (place + 1 == len(args) or args[place + 1].startswith("-")):
                given[place] = f"{LABELS}="
        return super().parse_args(ctx, given)


COMMAND_CLASS = ReplayCommand
"""What the command must be mounted with."""


def replay(
    source: Annotated[
        str | None, typer.Argument(help="A recording folder, or the base URL of a Prometheus.", show_default=False)
    ] = None,
    labels: Annotated[
        str | None, typer.Option(help=f"Compare with the truth in this file; without a value: {OWN}.", show_default=OWN)
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write one self-contained page: incidents over signals.")] = None,
    config: Annotated[
        Path | None, typer.Option(help="Settings (warden.yaml) to replay by: policy, detectors, runbooks.")
    ] = None,
    fleet: Annotated[
        Path | None, typer.Option(help="Fleet file: its serving budgets, and the map for a Prometheus.")
    ] = None,
    begin: Annotated[
        str, typer.Option("--from", help="Begin of the range in a Prometheus: 2026-11-29T15:13Z, 1795965190, 30m (ago).")
    ] = "1h",
    end: End = "now",
    match: Match = None,
    token_file: TokenFile = None,
    interval: Annotated[
        float | None,
        typer.Option(min=0.1, max=300, help="Seconds from one look to the next.", show_default="as recorded, 2 at least"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Rows and totals as JSON (keys: docs/replay.md).")] = False,
) -> None:
    """Run the warden's loop over recorded telemetry, act on nothing, and say what it would have done.

    Without --config the warden may do all that its runbooks allow, so that you see what it would do if you let it.

    Exit code: 0 done (with labels: and everything found, rightly named, and nothing else raised), 1 the comparison with
    the labels shows a fault missed or misnamed, a false incident, or a destructive step for a healthy engine, 2 bad usage or
    unreadable input.
    """
    if source is None and labels:  # `replay --labels FOLDER`: the folder is meant to be replayed
        source, labels = labels, ""
    if source is None:
        fail("name what to replay: a recording folder, or the base URL of a Prometheus with --from and --to")
    if html is not None and not html.parent.is_dir():
        fail(f"{html} cannot be written: there is no folder {html.parent}")
    asked = Asked(source, begin, end, tuple(match or ()), token_file, interval)
    traces = Traces() if html is not None else None
    with _opened(asked, labels, fleet) as (recorded, happenings):
        minds, horizon = _minds(config, fleet, recorded.cadence)
        with progress(len(recorded.times), quiet=as_json) as steps:
            watch = _watching(steps, traces)
            played = play(recorded, minds, shipped_verbs(), horizon=horizon, measuring=SystemClock(), watch=watch)
    found = rows(played)
    judgement = None if happenings is None else judge(found, faults_in(happenings, played.ended))
    if html is not None and traces is not None:
        _write_page(html, Told(source, played, found, traces, judgement, happenings or ()))
    if as_json:
        typer.echo(orjson.dumps(_as_json(source, played, found, judgement), option=orjson.OPT_INDENT_2).decode())
    else:
        _print(source, played, found, judgement)
    raise typer.Exit(0 if judgement is None or judgement.good else 1)


@contextlib.contextmanager
def _opened(asked: Asked, labels: str | None, fleet: Path | None) -> Iterator[tuple[Recorded, tuple[Happening, ...] | None]]:
    """What is replayed, and its labels where there are any. What cannot be read ends the command."""
    try:
        if not asked.url.startswith(("http://", "https://")):
            yield _folder(Path(asked.url), labels, asked.interval)
            return
        happenings = read_labels(Path(labels)) if labels else None
        with contextlib.closing(_range(asked, fleet)) as recorded:
            yield recorded, happenings
    except (RecordingError, PromqlError) as unreadable:
        fail(str(unreadable))


def _range(asked: Asked, fleet: Path | None) -> PrometheusRange:
    try:
        return open_range(asked, fleet, SystemClock())
    except ValueError as mistyped:
        fail(str(mistyped))


def _folder(folder: Path, labels: str | None, interval: float | None) -> tuple[Recording, tuple[Happening, ...] | None]:
    """A recording and its labels, None where there are none. Raises RecordingError."""
    recording = Recording(folder, interval=interval)
    if labels:
        path = Path(labels)
        return recording, read_labels(path / EVENTS if path.is_dir() else path)
    own = folder / EVENTS
    return recording, read_labels(own) if labels is not None or own.exists() else None


def _minds(config: Path | None, fleet: Path | None, cadence: float) -> tuple[Minds, float]:
    """The judgements to replay by, and the seconds of the past that they see. Raises FileError."""
    settings = load_settings(config)
    if fleet is None and config is not None and settings.fleet_file.exists():
        fleet = settings.fleet_file
    if config is None and "autonomy" not in settings.policy.model_fields_set:
        settings = _allowed(settings)
    minds = make_minds(settings, FleetFile.read(fleet) if fleet is not None else None, Bystander(shipped_verbs()))
    parameters = for_cadence(load_parameters(settings.detectors), cadence)
    freshness = max(minds.policy.freshness, FRESH_READINGS * cadence)
    policy = minds.policy.model_copy(update={"freshness": freshness})
    return replace(minds, detect=lambda window: detect_all(window, parameters), policy=policy), settings.loop.history


def _allowed(settings: WardenSettings) -> WardenSettings:
    policy = settings.policy.model_copy(update={"autonomy": Autonomy.AUTO})
    return settings.model_copy(update={"policy": policy})


def _watching(steps: Steps, traces: Traces | None) -> Callable[[StepReport], None]:
    def watch(report: StepReport) -> None:
        steps.done()
        if traces is not None:
            traces.take(report)

    return watch


def _write_page(path: Path, told: Told) -> None:
    try:
        path.write_text(page(told), "utf-8")
    except OSError as refused:
        fail(f"{path} cannot be written: {refused.strerror}")


def _print(source: str, played: Played, found: tuple[Row, ...], judgement: Judgement | None) -> None:
    span = f"{date_time(played.begun).removesuffix(' UTC')} to {date_time(played.ended)}"
    engines = len(played.topology.engines)
    parts: list[object] = [
        Text(f"{source}: {span}, {duration(played.ended - played.begun)} of {engines} engines in {played.steps} steps\n")
    ]
    parts.append(incident_table(found, judgement) if found else Text("no incidents"))
    if judgement is not None:
        parts += [Text(), fault_table(judgement.faults, played.begun), Text(), totals_line(judgement)]
        unknown = sorted({fault.fault for fault in judgement.faults if not fault.expected})
        if unknown:
            what = f"what should be diagnosed for {', '.join(unknown)} is not known: say so with `causes` in its label"
            parts.append(Text(what, style="yellow"))
    parts += [Text(f"detector failed: {failure}", style="red") for failure in played.failures]
    print_all(parts)  # type: ignore[arg-type]


def _as_json(source: str, played: Played, found: tuple[Row, ...], judgement: Judgement | None) -> dict[str, object]:
    return {
        "source": source,
        "from": played.begun,
        "to": played.ended,
        "engines": [engine.name for engine in played.topology.engines],
        "steps": played.steps,
        "rows": [row.model_dump(mode="json") for row in found],
        "faults": [fault.model_dump(mode="json") for fault in judgement.faults] if judgement else None,
        "totals": judgement.totals.model_dump() if judgement else None,
        "false": judgement.false if judgement else None,
        "destructive": judgement.destructive if judgement else None,
        "failed_detectors": played.failures,
    }
