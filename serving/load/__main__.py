"""`python -m serving.load`: make load on the front door or on one engine, and say what became of it."""

import argparse
import asyncio
import contextlib
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import orjson

from serving.load.arrivals import LoadError, LoadPlan
from serving.load.patterns import PATTERNS
from serving.load.runner import run_load
from serving.load.tally import Tally

BAD_USAGE = 2


def number(text: str) -> int:
    """A whole number, also when written as 1e3."""
    value = float(text)
    if not value.is_integer():
        raise argparse.ArgumentTypeError(f"{text} is not a whole number")
    return int(value)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    names = "\n".join(f"  {p.name:<18} {p.summary} ({p.rps:g} rps for {p.seconds:g} s)" for p in PATTERNS.values())
    made = argparse.ArgumentParser(
        prog="python -m serving.load",
        description="Users for a vLLM fleet, well-behaved and otherwise.",
        epilog=f"patterns, with what they do unless told otherwise:\n{names}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--url", required=True, help="base URL of the front door, or of one engine")
    made.add_argument("--model", required=True, help="the model to ask for")
    made.add_argument("--pattern", choices=PATTERNS, default="steady", help="what the users do (default %(default)s)")
    made.add_argument("--rps", type=float, help="arrivals per second (surge: a fleet's usual rate, sent eight times)")
    made.add_argument("--seconds", type=float, help="for how long clients arrive")
    made.add_argument("--prompt-tokens", type=number, help="length of every prompt, instead of the pattern's spread")
    made.add_argument("--output-tokens", type=number, help="length of every answer, instead of the pattern's spread")
    made.add_argument("--seed", type=number, default=0, help="the same seed makes the same arrivals (default %(default)s)")
    made.add_argument("--max-requests", type=number, default=1_000_000, help="end after so many (default %(default)s)")
    made.add_argument("--max-in-flight", type=number, default=1_000, help="most that wait at once (default %(default)s)")
    made.add_argument("--request-timeout", type=float, default=120.0, metavar="S", help="(default %(default)s)")
    made.add_argument("--log", type=Path, metavar="FILE", help="append one JSON line for each request")
    made.add_argument("--json", action="store_true", help="print the summary as JSON; progress goes to stderr")
    made.add_argument("--allow-remote", action="store_true", help="allow a URL that is not on this machine")
    return made


def planned(arguments: argparse.Namespace) -> LoadPlan:
    """The plan from parsed arguments. Raises LoadError."""
    return LoadPlan(
        pattern=PATTERNS[arguments.pattern],
        url=arguments.url,
        model=arguments.model,
        rps=arguments.rps,
        seconds=arguments.seconds,
        prompt_tokens=arguments.prompt_tokens,
        output_tokens=arguments.output_tokens,
        seed=arguments.seed,
        max_requests=arguments.max_requests,
        max_in_flight=arguments.max_in_flight,
        request_timeout_s=arguments.request_timeout,
        allow_remote=arguments.allow_remote,
    )


async def make(plan: LoadPlan, log: Path | None, *, as_json: bool) -> Tally:
    """Make the load until it ends or a signal ends it; every client then leaves."""
    out = sys.stderr if as_json else sys.stdout
    tally = Tally()

    def progress(elapsed: float, seen: Tally) -> None:
        out.write(seen.line(elapsed) + "\n")
        out.flush()

    with contextlib.ExitStack() as stack:
        file = stack.enter_context(log.open("ab", buffering=0)) if log is not None else None
        running = asyncio.create_task(run_load(plan, tally, log=file, progress=progress))
        for signalled in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(signalled, running.cancel)
        out.write(f"{plan.pattern.name}: {plan.rate:g} requests/s for {plan.duration:g} s to {plan.url}\n")
        out.flush()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    return tally


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done or ended by a signal, 1 requests failed and none was answered, 2 bad usage or unwritable log."""
    arguments = parser().parse_args(argv)
    try:
        plan = planned(arguments)
        tally = asyncio.run(make(plan, arguments.log, as_json=arguments.json))
    except LoadError as error:
        sys.stderr.write(f"error: {error}\n")
        return BAD_USAGE
    except OSError as error:
        sys.stderr.write(f"error: --log {arguments.log}: {error}\n")
        return BAD_USAGE
    about = {"pattern": plan.pattern.name, "url": plan.url, "model": plan.model, "seed": plan.seed}
    if arguments.json:
        sys.stdout.write(orjson.dumps({**about, **tally.summary()}, option=orjson.OPT_INDENT_2).decode() + "\n")
    else:
        sys.stdout.write(f"done after {tally.line(plan.duration)}\n")
    return 1 if tally.failed and not tally.ok else 0


if __name__ == "__main__":
    sys.exit(main())
