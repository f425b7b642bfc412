"""Makes repaired-hang.svg from a real run: `fleetwarden up --detach`, then `python docs/images/repaired_hang.py`.

It hangs one engine of the running local fleet, waits until the warden has repaired it, and draws what a terminal showed.
"""

import subprocess
from pathlib import Path

from rich.console import Console
from rich.text import Text

from agent import status as page
from agent.cli.status import render
from agent.cli.up import lines_of
from agent.journal.stored import open_journal
from serving.clock import SystemClock
from serving.engines.state_directory import default_state_directory

ENGINE = "sim-1"
PICTURE = Path(__file__).with_name("repaired-hang.svg")


def main() -> None:
    """Hang, watch, draw."""
    directory, clock = default_state_directory(), SystemClock()
    console = Console(record=True, width=132)
    journal = open_journal(directory / "journal.sqlite", create=False)
    seen = max((entry.seq for entry in journal.events()), default=0)
    command = ["fleetwarden", "fault", "inject", "engine-hang", ENGINE]
    console.print(Text(f"$ {' '.join(command)}", style="bold"))
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - the command is this file's own
    shown = False
    while True:
        clock.sleep(1.0)
        fresh = journal.events(since=seen)
        seen = fresh[-1].seq if fresh else seen
        for line in lines_of(fresh, journal):
            console.print(Text(line, overflow="ellipsis", no_wrap=True))
        now = page.read(directory)
        if now is not None and now.incidents and not shown and any(row.state == "drained" for row in now.engines):
            shown = True
            console.print(render(now, clock.now()))
        if shown and now is not None and not now.incidents:
            console.print(render(now, clock.now()))
            break
    PICTURE.write_text(console.export_svg(title="fleetwarden"))


if __name__ == "__main__":
    main()
