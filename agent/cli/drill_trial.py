"""`fleetwarden drill trial`: one trial of the scoreboard lived once more, with its whole record."""

from collections.abc import Iterator
from itertools import zip_longest
from typing import Annotated

import typer
from pydantic import BaseModel, ConfigDict
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from agent.cli.tables import AsJson, explained, fail, print_all, print_json
from agent.explanation import Explanation, explanation
from agent.scoreboard.episode import Episode, lived
from agent.scoreboard.suite import draw_suite, load_tables
from agent.scoreboard.trial import DATA, Data, FaultResult, TrialResult, TrialSpec


class TrialRecord(BaseModel):
    """What was made, what came of it by the scoreboard's judgement, and every incident with its record."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: Data = DATA
    spec: TrialSpec
    result: TrialResult
    incidents: tuple[Explanation, ...]


def trial(
    number: Annotated[int, typer.Argument(min=0, help="Its number, as a scoreboard names it.")],
    suite: Annotated[str, typer.Option(help="The suite that it belongs to.")] = "full",
    seed: Annotated[int, typer.Option(min=0, help="The first seed of the run that numbered it.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Live one trial of `drill score` once more, and tell what was made, what was found, and why.

    The same suite, first seed and number give the same trial, so a scoreboard's missed, misnamed and disturbed trials can be
    looked at one by one. All of it is simulated. JSON: {data, spec, result, incidents}; spec and result are in
    agent.scoreboard.trial, incidents as in `fleetwarden explain`.

    Exit code: 0 lived through, 1 the trial could not be run to its end, 2 bad usage.
    """
    spec = _drawn(suite, seed, number)
    episode, result = lived(spec)
    told = TrialRecord(spec=spec, result=result, incidents=tuple(_incidents(episode)))
    if as_json:
        print_json(told)
    else:
        print_all(_told(told, episode.began, episode.stage.fleet.now))
    raise typer.Exit(1 if result.error else 0)


def _drawn(suite: str, first: int, number: int) -> TrialSpec:
    tables = load_tables()
    if suite not in tables.suites:
        fail(f"there is no suite {suite!r}; there are {', '.join(tables.suites)}")
    each = len(draw_suite(suite, 1, first, tables))  # of every seed as many
    return draw_suite(suite, number // each + 1, first, tables)[number]


def _incidents(episode: Episode) -> Iterator[Explanation]:
    events = episode.events()
    for incident in sorted(episode.journal.incidents(), key=lambda one: one.opened_at):
        yield explanation(incident, events[incident.id])


def _told(told: TrialRecord, began: float, now: float) -> Iterator[RenderableType]:
    spec, result, fleet = told.spec, told.result, told.spec.fleet
    yield Text(f"Trial {spec.number} (simulated): {spec.kind.replace('_', ' ')}", style="bold")
    models = f"{fleet.models} model{'s' if fleet.models > 1 else ''}"
    yield Text(
        f"{fleet.engines} engines of {models} at tensor parallel size {fleet.tp}, {fleet.rps:g} requests a second each; "
        f"lived {result.virtual_seconds:.0f} s in {result.steps} steps; {result.ok:.0f} answers, {result.failed:.0f} failed"
    )
    if result.error:
        yield Text(f"could not be run to its end: {result.error}", style="red")
    yield _faults(told)
    for what, said in (("False incidents", result.false_incidents), ("False actions", result.false_actions)):
        yield Text(f"{what}: {', '.join(said) or 'none'}", style="red" if said else "")
    for incident in told.incidents:
        after = incident.incident.opened_at - began
        yield Text(f"\n=== {after:.0f} s after the trial began " + "=" * 60, style="dim")
        yield from explained(incident, now)


def _faults(told: TrialRecord) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("made", "from s", "for s", "on", "found after s", "as", "first action", "cured"):
        table.add_column(name, overflow="fold")
    for fault, result in zip_longest(told.spec.faults, told.result.faults):
        numbers = ", ".join(f"{key} {value:g}" for key, value in fault.parameters)
        made = f"{fault.name}{f' ({numbers})' if numbers else ''}, {fault.onset}"
        table.add_row(made, f"{fault.at:g}", f"{fault.lasts:g}", *_found(result))
    return table


def _found(fault: FaultResult | None) -> tuple[RenderableType, ...]:
    if fault is None:  # a decoy: nothing was to be found
        return ("", "", "", "", "")
    return (
        fault.target,
        "never" if fault.detected_after is None else f"{fault.detected_after:.0f}",
        Text(fault.cause or "", style="" if fault.right_cause else "red"),
        Text(fault.first_action or "none", style="" if fault.right_action else "red"),
        "yes" if fault.cured else "no",
    )
