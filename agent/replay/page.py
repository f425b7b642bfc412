"""The page of a replay: one HTML file that needs nothing else, with the incidents over the signals."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from string import Template

from agent.replay.drawing import LEFT, RIGHT, WIDTH, Bar, Scale, axis, chart, lane
from agent.replay.judge import FaultRow, Judgement, Verdict
from agent.replay.play import Played
from agent.replay.rows import Row, WouldDo
from agent.replay.traces import CHARTS, Traces
from agent.report.layout import clock_time, date_time
from agent.report.wording import duration
from serving.fleet.entity import Entity, EntityKind
from serving.fleet.topology import Relation
from serving.telemetry.recording_files import Happening

MOST_ENGINES = 16
"""More engines than this are not drawn: those with incidents and faults come first."""
KINDS = {
    "act": "incident: it would have acted",
    "tell": "incident: it would have told people",
    "thin": "not enough evidence",
    "truth": "what was really done",
}
_TAGS = {Verdict.RIGHT: "right", Verdict.WRONG: "wrong", Verdict.NOT_ENOUGH: "thin", Verdict.MISSED: "wrong"}


@dataclass(frozen=True, slots=True, eq=False)
class Told:
    """All that a page tells. `judgement` is None without labels; `happenings` are the labels."""

    source: str
    played: Played
    rows: Sequence[Row]
    traces: Traces
    judgement: Judgement | None = None
    happenings: Sequence[Happening] = ()

    @property
    def scale(self) -> Scale:
        """The time that is drawn."""
        return Scale(self.played.begun, self.played.ended)


def page(told: Told) -> str:
    """The whole page as HTML."""
    shell = Template(resources.files("agent.replay").joinpath("page.html").read_text("utf-8"))
    return shell.substitute(
        title=escape(f"Replay of {told.source}"),
        body="\n".join(_body(told)),
        begin=told.played.begun,
        end=told.played.ended,
        left=LEFT,
        right=RIGHT,
        width=WIDTH,
    )


def steps_in_words(steps: Sequence[WouldDo]) -> str:
    """The proposed steps, shortly: `engine.canary, door.drain, process.restart`."""
    return ", ".join(step.verb + _arguments(step) for step in steps)


def would_have(row: Row) -> str:
    """What the warden would have done about a row, in a few words."""
    if row.would_do:
        asks = {"ask": "asked a person, then: ", "refuse": "recommended: "}.get(row.verdict, "")
        return asks + steps_in_words(row.would_do)
    if not row.enough:
        return "nothing: not enough evidence"
    if row.reason == "autonomy_recommend":
        return "told people; no engine is touched"
    return f"nothing ({row.reason.replace('_', ' ')}): {row.says}"


def _arguments(step: WouldDo) -> str:
    if step.takes_back is not None:
        return " back to what it was"
    if step.harmless or not step.arguments:
        return ""
    return f" ({', '.join(f'{name} {value}' for name, value in step.arguments.items())})"


def _body(told: Told) -> Iterator[str]:
    played = told.played
    yield f"<h1>{escape(told.source)}</h1>"
    span = f"{date_time(played.begun).removesuffix(' UTC')} to {date_time(played.ended)}"
    engines = len(played.topology.engines)
    yield f'<p class="soft">{span}: {duration(played.ended - played.begun)} of {engines} engines, looked at {played.steps} '
    yield "times by the warden's own loop. Nothing was done; what is said of repairs is what it would have done.</p>"
    yield from _tiles(told)
    yield '<h2>Incidents over the signals</h2><p class="soft">'
    yield "".join(_key(kind, what) for kind, what in KINDS.items() if kind != "truth" or told.happenings)
    yield "</p>"
    yield '<div class="scroll"><div id="drawn" style="position:relative"><div id="hair"></div>'
    yield axis(told.scale)
    yield from _fleet(told)
    for engine in _drawn(told):
        yield from _engine(told, engine)
        yield axis(told.scale)
    yield "</div></div>"
    left_out = engines - MOST_ENGINES
    if left_out > 0:
        yield f'<p class="soft">{left_out} more engines, without incidents or with less than these, are not drawn.</p>'
    if told.judgement is not None:
        yield from _faults(told.judgement, told)
    yield "<h2>Incidents</h2>"
    yield from (_incident(row, told) for row in told.rows)
    if not told.rows:
        yield "<p>None.</p>"
    yield from (f'<p class="tag wrong">a detector failed: {escape(failure)}</p>' for failure in played.failures)


def _key(kind: str, what: str) -> str:
    return f'<span class="key"><i class="box" style="background:var(--{kind})"></i>{what}</span>'


def _tiles(told: Told) -> Iterator[str]:
    yield '<div class="tiles">'
    if told.judgement is None:
        sure = sum(row.enough for row in told.rows)
        yield _tile(sure, "incidents") + _tile(len(told.rows) - sure, "with not enough evidence")
        yield _tile(sum(any(not step.harmless for step in row.would_do) for row in told.rows), "repairs it would have made")
    else:
        sums = told.judgement.totals
        yield _tile(sums.faults, "faults were made")
        yield _tile(sums.found, "found", good=sums.found + sums.not_enough_evidence >= sums.faults)
        yield _tile(sums.right_cause_first, "with the right cause first", good=sums.right_cause_first >= sums.found)
        yield _tile(sums.not_enough_evidence, "with not enough evidence")
        yield _tile(sums.false_incidents, "false incidents", good=not sums.false_incidents)
        yield _tile(
            sums.destructive_steps_on_healthy,
            "destructive steps for healthy engines",
            good=not sums.destructive_steps_on_healthy,
        )
        if sums.detect_seconds_p50 is not None:
            yield _tile(f"{sums.detect_seconds_p50:.0f} s", "to find one, in the median")
            yield _tile(f"{sums.detect_seconds_max:.0f} s", "to find one, at most")
    yield "</div>"


def _tile(value: object, what: str, *, good: bool | None = None) -> str:
    kind = "" if good is None else " good" if good else " bad"
    return f'<div class="tile{kind}"><b>{value}</b><small>{what}</small></div>'


def _fleet(told: Told) -> Iterator[str]:
    """What concerns no single engine."""
    truth = [_truth_bar(h, told) for h in told.happenings if h.phase == "start" and h.target == "all"]
    bars = [_bar(row, told) for row in told.rows if Entity.parse(row.entity).kind is not EntityKind.ENGINE]
    if truth or bars:
        yield "<section><h3>The whole fleet</h3>"
        yield lane("really done", truth, told.scale) if truth else ""
        yield lane("incidents", bars, told.scale) if bars else ""
        yield "</section>"


def _drawn(told: Told) -> list[Entity]:
    """The engines to draw: those that anything is said of first, then in the order of the map."""
    spoken = {row.entity for row in told.rows} | {f"engine/{h.target}" for h in told.happenings}
    engines = sorted(told.played.topology.engines, key=lambda engine: str(engine) not in spoken)[:MOST_ENGINES]
    return [engine for engine in told.played.topology.engines if engine in set(engines)]


def _engine(told: Told, engine: Entity) -> Iterator[str]:
    facts = told.played.topology.facts(engine)
    nodes = told.played.topology.related(engine, Relation.RUNS_ON)
    where = f" on {nodes[0].name}" if nodes else ""
    yield f"<section><h3>{escape(engine.name)} <small>serves {escape(facts.model)}{escape(where)}</small></h3>"
    truth = [_truth_bar(h, told) for h in told.happenings if h.phase == "start" and h.target == engine.name]
    bars = [_bar(row, told) for row in told.rows if row.entity == str(engine)]
    if truth:
        yield lane("really done", truth, told.scale)
    if bars:
        yield lane("incidents", bars, told.scale)
    lines = told.traces.of(told.played.topology.row_of[engine.name])
    for number, one in enumerate(CHARTS):
        mine = [(n, *lines[number, n]) for n in range(len(one.lines)) if (number, n) in lines]
        if mine:
            keys = "".join(
                f'<span class="key"><i style="border-color:var(--l{n})"></i>{one.lines[n].name}</span>' for n, _, _ in mine
            )
            yield chart(one.title, one.unit, mine, bars, told.scale)
            yield f'<p class="soft keys" style="margin-left:{LEFT}px">{keys}</p>' if len(one.lines) > 1 else ""
    yield "</section>"


def _bar(row: Row, told: Told) -> Bar:
    begin = row.enough_at if row.enough_at is not None else row.first_seen
    end = row.until if row.until is not None else told.played.ended
    kind = "act" if row.would_do else "tell" if row.enough else "thin"
    tip = f"{row.cause} on {row.entity}, score {row.score:.2f}\n{clock_time(row.first_seen)}\nwould have: {would_have(row)}"
    return Bar(begin, max(begin, end), row.cause, kind, tip, row.incident)


def _truth_bar(start: Happening, told: Told) -> Bar:
    ends = [h.at for h in told.happenings if h.phase == "end" and (h.fault, h.target) == (start.fault, start.target)]
    end = min((at for at in ends if at > start.at), default=told.played.ended)
    kind = "benign" if start.benign else "truth"
    word = f"{start.fault}{' (benign)' if start.benign else ''}"
    return Bar(start.at, end, word, kind, f"{word}\n{start.how}\n{duration(end - start.at)}")


def _faults(judgement: Judgement, told: Told) -> Iterator[str]:
    yield "<h2>What was really done, and what was made of it</h2><table><tr><th>fault</th><th>target</th><th>made</th>"
    yield "<th>lasted</th><th>found after</th><th>as</th><th>verdict</th></tr>"
    for fault in judgement.faults:
        cause = f'<a href="#{escape(fault.incident)}">{escape(fault.cause or "")}</a>' if fault.incident else "-"
        cells = (
            ("", escape(fault.fault)),
            ("", escape(fault.target)),
            ("n", f"+{fault.start - told.played.begun:.0f} s"),
            ("n", duration(fault.end - fault.start)),
            ("n", "-" if fault.detect_seconds is None else f"{fault.detect_seconds:.0f} s"),
            ("", cause),
            ("", _tag(fault)),
        )
        yield f"<tr>{''.join(_cell(kind, cell) for kind, cell in cells)}</tr>"
    yield "</table>"


def _cell(kind: str, content: str) -> str:
    return f'<td class="{kind}">{content}</td>'


def _tag(fault: FaultRow) -> str:
    kind, word = _TAGS[fault.verdict], str(fault.verdict).replace("_", " ")
    if fault.near_noise and fault.verdict is Verdict.MISSED:
        kind, word = "thin", "nothing said; near the noise"
    also = f" also: {', '.join(fault.also)}" if fault.also else ""
    return f'<span class="tag {kind}">{word}</span>{escape(also)}'


def _incident(row: Row, told: Told) -> str:
    tag = ""
    if told.judgement is not None and row.incident in told.judgement.false:
        tag = ' <span class="tag wrong">false</span>'
    head = f"{clock_time(row.first_seen)} (+{row.after:.0f} s) {row.cause} on {row.entity}, score {row.score:.2f}"
    rivals = [f"{rival.cause} on {rival.entity}, {rival.score:.2f}: {rival.behind_because}" for rival in row.rivals]
    course = [
        f"{clock_time(one.at)} {one.cause} {one.score:.2f}{'' if one.enough else ' (not enough)'}" for one in row.course
    ]
    parts = [
        ("Evidence", row.evidence),
        ("Rivals, and why they are behind", rivals),
        ("Could not be seen", row.missing),
        ("Taken for", course if len(course) > 1 else ()),
        ("Would have", [would_have(row), *([row.says] if row.says else [])]),
        ("A person is told", [row.advice] if row.advice else ()),
    ]
    lists = "".join(_list(title, lines) for title, lines in parts if lines)
    return f'<details id="{escape(row.incident)}"><summary>{escape(head)}{tag}</summary>{lists}</details>'


def _list(title: str, lines: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<small>{title}</small><ul>{items}</ul>"
