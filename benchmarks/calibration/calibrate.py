"""The fleet in virtual time against recordings of real vLLM, under the same requests and faults.

    python benchmarks/calibration/calibrate.py [--recordings DIR] [--pictures DIR] [--seed N] [--json]

Exit code 0 when every row of bounds.yaml holds, 1 when one does not, 2 when a recording cannot be read. The JSON keys are in
docs/calibration.md.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from bounds import Bounds, Row, compared, facts, load_bounds
from pictures import NoPicturesError, draw
from played import ClientLog, Part, parts, play, recorded
from shapes import Side, seen

from serving.telemetry.recording import Recording, RecordingError

RECORDINGS = Path(__file__).parents[2] / "tests" / "recordings"


@dataclass(frozen=True, slots=True)
class Fact:
    """Whether a fact holds on both sides."""

    recording: str
    part: str
    fact: str
    recorded: bool
    virtual: bool

    @property
    def holds(self) -> bool:
        """On both sides."""
        return self.recorded and self.virtual


@dataclass(frozen=True)
class Comparison:
    """One recording against the fleet in virtual time."""

    real: Side
    virtual: Side
    rows: tuple[Row, ...]
    facts: tuple[Fact, ...]


def compare(folder: Path, bounds: Bounds, seed: int = 0) -> Comparison:
    """Live through a recording folder and compare. Raises RecordingError."""
    recording, log = Recording(folder), ClientLog.read(folder)
    every, last = parts(recording.happenings), float(recording.times[-1])
    real = seen(recorded(recording), every, last, log)
    virtual = seen(play(recording, log, seed), every, last)
    name = folder.name
    told = zip(facts(name, bounds, real), facts(name, bounds, virtual), strict=True)
    return Comparison(
        real,
        virtual,
        tuple(compared(name, bounds, real, virtual)),
        tuple(Fact(name, part, fact, held, other) for (part, fact, held), (_, _, other) in told),
    )


def main(
    recordings: Annotated[Path, typer.Option(help="The folder of the recordings.")] = RECORDINGS,
    pictures: Annotated[Path | None, typer.Option(help="Draw the pictures into this folder.")] = None,
    seed: Annotated[int, typer.Option(help="Of the fleet in virtual time.")] = 0,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of tables.")] = False,
) -> None:
    """Compare, print what was compared, and draw it where asked to."""
    bounds = load_bounds()
    try:
        done = [compare(recordings / name, bounds, seed) for name in bounds.parts]
    except (RecordingError, OSError) as error:
        typer.echo(f"{error}", err=True)
        raise typer.Exit(2) from None
    rows = [row for one in done for row in one.rows]
    told = [fact for one in done for fact in one.facts]
    print(_json(rows, told) if as_json else _markdown(rows, told))
    if pictures is not None:
        sides: dict[Part, tuple[Side, Side]] = {part: (one.real, one.virtual) for one in done for part in one.real.shapes}
        try:
            draw(sides, pictures)
        except NoPicturesError as error:
            typer.echo(f"{error}", err=True)
            raise typer.Exit(2) from None
    raise typer.Exit(0 if all(row.holds for row in rows) and all(fact.holds for fact in told) else 1)


def _json(rows: list[Row], told: list[Fact]) -> str:
    return json.dumps(
        {
            "rows": [{**asdict(row), "ratio": row.ratio, "differs": row.differs, "holds": row.holds} for row in rows],
            "facts": [{**asdict(fact), "holds": fact.holds} for fact in told],
        },
        indent=1,
    )


def _markdown(rows: list[Row], told: list[Fact]) -> str:
    lines = ["| Part | Fact | Recorded | Virtual |", "|---|---|---|---|"]
    lines += [f"| {one.part} | {one.fact} | {_yes(one.recorded)} | {_yes(one.virtual)} |" for one in told]
    lines += [
        "",
        "| Part | Signal | Of | What | Recorded | Virtual | Ratio | Bounds | |",
        "|---|---|---|---|--:|--:|--:|---|---|",
    ]
    for row in rows:
        mark = "**fails**" if not row.holds else f"differs: {row.why}" if row.differs else row.why
        lines.append(
            f"| {row.part} | {row.signal} | {row.of} | {row.what} | {row.recorded:.3g} | {row.virtual:.3g} "
            f"| {row.ratio:.2f} | {row.low:.2f} to {row.high:.2f} | {mark} |"
        )
    return "\n".join(lines)


def _yes(held: bool) -> str:  # noqa: FBT001 - a word for a truth value
    return "yes" if held else "**no**"


if __name__ == "__main__":
    typer.run(main)
