"""`fleetwarden record`: a fleet's telemetry into a folder that `fleetwarden replay` plays, live or out of a Prometheus."""

import asyncio
import platform
import signal
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from agent.cli.replay_tables import progress
from agent.cli.store_range import Asked, End, Match, TokenFile, open_range
from agent.cli.tables import fail, print_json
from agent.record.past import record_range
from agent.replay.span import seconds
from agent.replay.truth import expected_of
from agent.report.wording import duration
from serving.clock import SystemClock
from serving.engines.state_directory import default_state_directory
from serving.fleet.fleet_file import FleetFile
from serving.telemetry.anonymity import Names, PlainNames, Pseudonyms
from serving.telemetry.live_recorder import LiveRecorder, Recorded
from serving.telemetry.otlp import OtlpSource
from serving.telemetry.promql import PromqlError, without_credentials
from serving.telemetry.recorder import Manifest, write_recording
from serving.telemetry.recording import Happening, RecordingError, read_labels
from serving.telemetry.registry import load_registry

BENIGN = frozenset({"baseline", "idle", "load_ramp", "done", "restart"})


def record(
    folder: Annotated[Path, typer.Argument(help="The folder to write; it must not exist yet.")],
    fleet: Annotated[
        Path | None, typer.Option(help="Fleet file of what is scraped; the local fleet's by default.", show_default=False)
    ] = None,
    lasting: Annotated[
        str, typer.Option("--for", help="How long to scrape, such as 90s or 10m; Ctrl-C writes what is there.")
    ] = "10m",
    interval: Annotated[float, typer.Option(min=0.1, max=300, help="Seconds from one scrape to the next.")] = 2.0,
    otlp: Annotated[
        str | None, typer.Option(help="HOST:PORT to receive the engines' spans on; engines must send them there.")
    ] = None,
    prometheus: Annotated[str | None, typer.Option(help="Base URL of a Prometheus to record from instead.")] = None,
    begin: Annotated[
        str, typer.Option("--from", help="Begin of the range in it, such as 2026-11-29T15:13Z or 30m (ago).")
    ] = "1h",
    end: End = "now",
    match: Match = None,
    token_file: TokenFile = None,
    labels: Annotated[Path | None, typer.Option(help="The truth about that time, to put beside it.")] = None,
    anonymise: Annotated[
        bool, typer.Option("--anonymise", help="Replace the names of engines, nodes, models, hosts and jobs.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="What was written, as JSON.")] = False,
) -> None:
    """Write telemetry of a fleet into a folder, to replay it or to show a case to others.

    JSON: the manifest's keys (docs/replay.md) and `folder`, `troubles`. Exit code: 0 written, 2 nothing could be written.
    """
    try:
        if folder.exists():
            fail(f"{folder} exists; name a folder that does not, so that nothing is overwritten")
        truth = read_labels(labels) if labels is not None else None
        if prometheus is not None:
            ask = Asked(prometheus, begin, end, tuple(match or ()), token_file, every_sample=True)
            recorded, engines, pace = _from_store(ask, fleet, quiet=as_json)
        else:
            recorded, engines, pace = _live(fleet, seconds(lasting), interval, otlp, quiet=as_json)
        source = "scrape" if prometheus is None else "prometheus"
        if prometheus is not None and not anonymise:
            source = without_credentials(prometheus)
        manifest = _manifest(recorded, source, engines, pace, anonymised=anonymise)
        names: Names = Pseudonyms(_is_known) if anonymise else PlainNames()
        write_recording(folder, recorded.log, manifest, names, spans=recorded.spans, labels=truth)
    except (RecordingError, PromqlError, ValueError) as refused:
        fail(str(refused))
    if as_json:
        print_json(manifest.model_dump() | {"folder": str(folder), "troubles": recorded.troubles})
        return
    for target, trouble in recorded.troubles.items():
        typer.echo(f"{target} could not always be read: {trouble}", err=True)
    told = (
        f"{duration(manifest.end - manifest.begin)} of {engines} engines, {manifest.series} series, {manifest.spans} spans"
    )
    typer.echo(f"{folder}: {told}{', names replaced' if anonymise else ''}. Replay it: fleetwarden replay {folder}")


def _from_store(asked: Asked, fleet: Path | None, *, quiet: bool) -> tuple[Recorded, int, float]:
    recorded = Recorded()
    store = open_range(asked, fleet, SystemClock())
    try:
        with progress(len(store.times), quiet=quiet, doing="recording") as steps:
            record_range(store, load_registry(), recorded.log, steps.done)
    finally:
        store.close()
    return recorded, len(store.topology.engines), round(store.cadence, 3)


def _live(
    fleet: Path | None, lasting: float, interval: float, otlp: str | None, *, quiet: bool
) -> tuple[Recorded, int, float]:
    file = FleetFile.read(fleet or default_state_directory() / "fleet.yaml")
    topology, scraping = file.topology(), file.telemetry.scrape
    receiver = OtlpSource(*_listener(otlp)) if otlp is not None else None
    recorder = LiveRecorder(
        topology,
        load_registry(),
        SystemClock(),
        door_url=file.gateway.url if file.gateway else None,
        spans=receiver,
        interval=interval,
        timeout=min(interval, scraping.timeout if scraping else interval),
    )
    typer.echo(f"recording {len(topology.engines)} engines for {duration(lasting)}; Ctrl-C ends it and writes", err=True)
    try:
        with progress(round(lasting), quiet=quiet, doing="recording") as steps:
            recorded = asyncio.run(_until_told(recorder, lasting, steps.reached))
    finally:
        if receiver is not None:
            receiver.close()
    return recorded, len(topology.engines), interval


async def _until_told(recorder: LiveRecorder, lasting: float, done: Callable[[float], None]) -> Recorded:
    stop = asyncio.Event()
    for wanted in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(wanted, stop.set)
    return await recorder.run(lasting, stop, done)


def _manifest(recorded: Recorded, source: str, engines: int, interval: float, *, anonymised: bool) -> Manifest:
    begin, end = recorded.log.span
    return Manifest(
        fleetwarden=metadata.version("fleetwarden"),
        python=platform.python_version(),
        source=source,
        vllm=tuple(sorted(recorded.vllm)),
        begin=begin,
        end=end,
        interval=interval,
        anonymised=anonymised,
        engines=engines,
        series=recorded.log.series,
        samples=recorded.log.samples,
        spans=len(recorded.spans),
    )


def _is_known(fault: str) -> bool:
    """Whether a word of a label names a kind of fault and nothing of the user's."""
    return fault in BENIGN or bool(expected_of(Happening(0.0, fault, "", "")).causes)


def _listener(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:  # noqa: PLR2004 - the highest port
        raise ValueError(f"--otlp {text!r} is not HOST:PORT, such as 127.0.0.1:4318")
    return host.strip("[]"), int(port)
