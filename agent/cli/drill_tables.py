"""How drills and their scorecards look to a person."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from agent.drill.card import Card, IncidentRow, Verdict
from agent.drill.gate import Aim
from agent.report.layout import date_time
from agent.report.wording import duration
from runbooks.drill import ON_TARGET, Drill, Expected, FaultOrder, FleetKind
from runbooks.drill_loader import LoadedDrill

STYLES = {
    Verdict.PASSED: "green",
    Verdict.FAILED: "red",
    Verdict.NOT_STEADY: "yellow",
    Verdict.ABORTED: "magenta",
    Verdict.INTERRUPTED: "magenta",
}
NO_VALUE = "-"


def drill_table(drills: Mapping[str, LoadedDrill], last: Mapping[str, Card]) -> Table:
    """One row a drill, with how it came out last."""
    table = _table("drill", "breaks", "expects", "on", "last run")
    for name, loaded in drills.items():
        drill = loaded.drill
        card = last.get(name)
        engines = f"{drill.fleet.engines}+ engines" if drill.fleet.engines_at_most is None else _exactly(drill)
        table.add_row(
            name,
            ", ".join(f"{order.fault} on {order.target}" for order in drill.faults),
            ", ".join(each.cause for each in drill.expect.incidents) or "nothing repaired",
            f"{engines}, {'/'.join(drill.fleet.kinds)}",
            NO_VALUE if card is None else verdict_text(card, f" {date_time(card.ended_at).removesuffix(' UTC')}"),
        )
    return table


def drill_lines(drill: Drill) -> Iterator[RenderableType]:
    """One drill in words."""
    yield Text(f"{drill.name}: {drill.summary}", style="bold")
    if drill.story:
        yield Text(drill.story.strip())
    steady = drill.steady
    yield Text(f"\nSteady for {steady.hold:g} s before, within {steady.within:g} s", style="bold")
    for text in ("every engine serves, nothing is open, the warden may act", *steady.require):
        yield Text(f"  - {text}")
    yield Text("\nBreaks", style="bold")
    for order in drill.faults:
        yield Text(f"  - {_order(order)}")
    radius = drill.blast_radius
    most = "any number of" if radius.engines is None else f"at most {radius.engines}"
    yield Text(f"\nBlast radius: {most} engines, {radius.share:.0%} of a model's capacity", style="bold")
    yield Text("\nCalled off at once when", style="bold")
    for text in ("anything else turns out to be wrong", *(f"{each.because}: {each.when}" for each in drill.abort)):
        yield Text(f"  - {text}")
    yield Text("\nExpected", style="bold")
    for each in drill.expect.incidents:
        yield Text(f"  - {_expected(each)}")
    if drill.expect.decoy:
        yield Text("  - nothing is repaired: it only looks like a fault")
    if drill.expect.tolerated:
        yield Text(f"  - may be opened beside: {', '.join(each.cause for each in drill.expect.tolerated)}")
    if drill.expect.failed_at_most is not None:
        yield Text(f"  - at most {drill.expect.failed_at_most} user requests fail")
    limits = drill.limits
    yield Text(f"\nUndone always, after {limits.watch:g} s at the latest; then steady again within {limits.recover:g} s")


def aims_table(aims: Sequence[Aim]) -> Table:
    """What would be broken."""
    table = _table("would break", "by", "parameters")
    for aim in aims:
        table.add_row(str(aim.target), aim.order.fault, _parameters(aim.order.parameters) or NO_VALUE)
    return table


def card_lines(card: Card) -> Iterator[RenderableType]:
    """One scorecard, the verdict first."""
    yield Text.assemble(f"\n{card.drill} ", verdict_text(card), (f"   {card.run}", "dim"))
    for reason in card.reasons:
        yield Text(f"  - {reason}")
    if card.incidents:
        yield _incidents(card.incidents)
    if card.decoy and card.injected_at is not None:
        yield Text(f"a decoy: nothing is wrong, so nothing may be repaired; opened: {', '.join(card.others) or 'nothing'}")
    elif card.others:
        yield Text(f"also opened: {', '.join(card.others)}")
    for row in card.faults:
        undo = {None: "never made", True: f"undone ({row.undo})", False: f"NOT UNDONE ({row.undo})"}[row.undone]
        yield Text(f"{row.fault} on {row.target}: {undo}")
    if card.failed_requests is not None:
        yield Text(f"user requests failed: {card.failed_requests:.0f}")
    if card.steady_again_after is not None:
        yield Text(f"steady again {duration(card.steady_again_after)} after the undo")


def history_table(cards: Iterable[Card]) -> Table:
    """One row a run, the newest last."""
    table = _table("when", "run", "verdict", "found", "isolated", "repaired", "failed", "because")
    for card in cards:
        row = card.incidents[0] if card.incidents else None
        table.add_row(
            date_time(card.ended_at).removesuffix(" UTC"),
            card.run,
            verdict_text(card),
            _span(row.detected_after if row else None),
            _span(row.isolated_after if row else None),
            _span(row.recovered_after if row else None),
            NO_VALUE if card.failed_requests is None else f"{card.failed_requests:.0f}",
            card.reasons[0] if card.reasons else "",
        )
    return table


def verdict_text(card: Card, more: str = "") -> Text:
    """The verdict in its colour; one in virtual time says so, for it says nothing about real engines."""
    where = " (virtual)" if card.fleet is FleetKind.VIRTUAL else ""
    return Text(f"{card.verdict.replace('_', ' ')}{where}{more}", style=STYLES[card.verdict])


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold dim")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _incidents(rows: Sequence[IncidentRow]) -> Table:
    table = _table("on", "found after", "called", "first action", "isolated after", "repaired after", "users", "as expected")
    for row in rows:
        table.add_row(
            row.entity or row.expected_on,
            _span(row.detected_after),
            row.cause or "nothing",
            row.first_action or "nothing",
            _span(row.isolated_after),
            _span(row.recovered_after),
            row.ending or "not ended",
            Text("yes" if row.met else "no", style="green" if row.met else "red"),
        )
    return table


def _span(seconds: float | None) -> str:
    return NO_VALUE if seconds is None else duration(seconds)


def _exactly(drill: Drill) -> str:
    low, high = drill.fleet.engines, drill.fleet.engines_at_most
    return f"{low} engine{'s' if low > 1 else ''}" if low == high else f"{low} to {high} engines"


def _order(order: FaultOrder) -> str:
    with_what = f" ({_parameters(order.parameters)})" if order.parameters else ""
    when = f", {order.after:g} s later" if order.after else ""
    end = f", for {order.lasts:g} s" if order.lasts is not None else ""
    return f"{order.fault} on {order.target}{with_what}{when}{end}"


def _parameters(parameters: Mapping[str, float]) -> str:
    return ", ".join(f"{name}={value:g}" for name, value in parameters.items())


def _expected(each: Expected) -> str:
    where = "what was broken" if each.on == ON_TARGET else f"a {each.on}"
    action = "" if each.first_action is None else f", first {each.first_action}"
    isolated = "" if each.isolated_within is None else f", isolated within {each.isolated_within:g} s"
    end = "" if each.ending == "any" else f", {each.ending}"
    within = f" within {each.recovered_within:g} s" if each.ending == "resolved" else ""
    return f"{each.cause} on {where} within {each.detected_within:g} s{action}{isolated}{end}{within}"
