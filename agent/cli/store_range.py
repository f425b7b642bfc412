"""A range of a Prometheus as typed on a command line: URL, begin, end, labels to match, token file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from agent.checkup.mapping import Mapped
from agent.replay.past import PrometheusRange, Store
from agent.replay.span import moment
from serving.clock import Clock
from serving.fleet.fleet_file import FleetFile
from serving.secret_file import read_secret
from serving.telemetry.registry import load_registry

End = Annotated[str, typer.Option("--to", help="End of that range.")]
Match = Annotated[list[str] | None, typer.Option(help="LABEL=VALUE that every query is narrowed to; may be repeated.")]
TokenFile = Annotated[Path | None, typer.Option(help="File with the bearer token for the Prometheus.")]


@dataclass(frozen=True, slots=True)
class Asked:
    """What was typed."""

    url: str
    begin: str
    end: str
    match: tuple[str, ...]
    token_file: Path | None
    interval: float | None = None
    every_sample: bool = False


def open_range(asked: Asked, fleet: Path | None, clock: Clock) -> PrometheusRange:
    """The range, over the fleet file's map where one is named.

    Raises PromqlError, FileError, and ValueError for what was typed wrongly.
    """
    now = clock.now()
    begin, end = moment(asked.begin, now), moment(asked.end, now)
    if not begin < end <= now + 1.0:
        raise ValueError(f"--from {asked.begin} and --to {asked.end} are no range of the past: the first must be earlier")
    match = dict(_pair(text) for text in asked.match)
    token = read_secret(asked.token_file) if asked.token_file is not None else None
    mapped = Mapped(FleetFile.read(fleet).topology()) if fleet is not None else None
    store = Store(asked.url, match, token)
    return PrometheusRange(
        store,
        begin,
        end,
        load_registry(),
        clock,
        interval=asked.interval,
        mapped=mapped,
        every_sample=asked.every_sample,
    )


def _pair(text: str) -> tuple[str, str]:
    label, equals, value = text.partition("=")
    if not equals or not label.isidentifier():
        raise ValueError(f"--match {text!r} is not LABEL=VALUE")
    return label, value
