"""`python -m serving.gateway`: run the front door until SIGTERM or Ctrl-C."""

import argparse
import asyncio
import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import ValidationError

from serving.clock import SystemClock
from serving.fleet.fleet_file import FleetFile
from serving.fleet.kubernetes_entry import KubernetesEntry
from serving.fleet.topology import EngineFacts, Topology
from serving.gateway.discovery import DiscoveryError, FileLook, Look, cluster_look, fixed, follow
from serving.gateway.proxy import Limits
from serving.gateway.server import DoorSettings, running_door
from serving.gateway.state_file import StateFileError
from serving.yaml_file import FileError

BAD_USAGE = 2
HIGHEST_PORT = 65_535
TOKEN_VARIABLE = "FLEETWARDEN_DOOR_TOKEN"  # noqa: S105 - the name of a variable, not a secret
_ENGINE = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)=(?P<model>[^@]+)@(?P<url>https?://\S+)")
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class UsageError(Exception):
    """The command line, or a file it names, is not usable. Says what to do."""


def engine(text: str) -> EngineFacts:
    """Read NAME=MODEL@URL. Raises UsageError."""
    match = _ENGINE.fullmatch(text)
    if match is None or not urlsplit(match["url"]).hostname:
        raise UsageError(f"--engine {text!r}: write NAME=MODEL@URL, as in sim-0=sim@http://127.0.0.1:8101")
    return EngineFacts(match["name"], match["url"].rstrip("/"), match["model"])


@contextmanager
def looking(arguments: argparse.Namespace) -> Iterator[Look]:
    """What finds the engines, as the command line says. Raises UsageError."""
    ways = (arguments.fleet is not None, bool(arguments.engine), arguments.kubernetes_selector is not None)
    if sum(ways) != 1:
        raise UsageError(
            "give one of --fleet FLEET.yaml, --kubernetes-selector SELECTOR, or one or more --engine NAME=MODEL@URL"
        )
    if arguments.engine:
        yield fixed(listed(arguments.engine))
        return
    try:
        fleet = FleetFile.read(arguments.fleet) if arguments.fleet is not None else selected(arguments)
        if fleet.kubernetes is None:
            yield FileLook(arguments.fleet) if arguments.follow else fixed(fleet.topology())
            return
        with cluster_look(fleet, SystemClock()) as look:
            yield look
    except (FileError, DiscoveryError) as error:
        raise UsageError(str(error)) from error


def selected(arguments: argparse.Namespace) -> FleetFile:
    """The fleet that --kubernetes-selector and its companions declare. Raises UsageError."""
    try:
        entry = KubernetesEntry(
            selector=arguments.kubernetes_selector,
            namespaces=arguments.kubernetes_namespace,
            kubeconfig=arguments.kubeconfig,
            context=arguments.kubernetes_context,
        )
    except ValidationError as error:
        says = "; ".join(f"--kubernetes-{wrong['loc'][0]}: {wrong['msg']}" for wrong in error.errors())
        raise UsageError(says) from error
    return FleetFile(fleet="door", kubernetes=entry)


def listed(engines: Sequence[str]) -> Topology:
    """The map from --engine. Raises UsageError."""
    facts = [engine(text) for text in engines]
    twice = sorted({fact.name for fact in facts if sum(other.name == fact.name for other in facts) > 1})
    if twice:
        raise UsageError(f"--engine: the name {', '.join(twice)} is given twice; names must differ")
    return Topology(facts)


def port(text: str) -> int:
    """A port number from the command line; 0 asks for a free one."""
    number = int(text)
    if not 0 <= number <= HIGHEST_PORT:
        raise argparse.ArgumentTypeError(f"{number} is no port; ports go from 0 to {HIGHEST_PORT}")
    return number


def token(path: Path | None) -> str | None:
    """The admin token from a file, or from the environment. Raises UsageError."""
    if path is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    try:
        read = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--admin-token-file {path}: cannot be read: {error}") from error
    if not read:
        raise UsageError(f"--admin-token-file {path}: is empty; put the token into it")
    return read


def settings(arguments: argparse.Namespace) -> DoorSettings:
    """The door's settings from parsed arguments. Raises UsageError."""
    secret = token(arguments.admin_token_file)
    if arguments.admin_host not in _LOOPBACK and secret is None:
        raise UsageError(
            f"--admin-host {arguments.admin_host}: orders from outside this machine need a token; "
            f"give --admin-token-file or set {TOKEN_VARIABLE}"
        )
    if arguments.first_byte_timeout <= 0 or arguments.request_timeout <= 0:
        raise UsageError("--first-byte-timeout and --request-timeout must be more than 0 seconds")
    return DoorSettings(
        host=arguments.host,
        port=arguments.port,
        admin_host=arguments.admin_host,
        admin_port=arguments.admin_port,
        state=arguments.state,
        admin_token=secret,
        limits=Limits(first_byte_s=arguments.first_byte_timeout, request_s=arguments.request_timeout),
        seed=arguments.seed,
    )


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m serving.gateway", description="The front door of a vLLM fleet.")
    made.add_argument("--fleet", type=Path, metavar="FLEET.yaml", help="the fleet's map")
    made.add_argument("--follow", action="store_true", help="read the fleet file again whenever it was written")
    made.add_argument("--kubernetes-selector", metavar="SELECTOR", help="the engines are the pods with these labels")
    made.add_argument(
        "--kubernetes-namespace", action="append", default=[], metavar="NAME", help="look there only; may be repeated"
    )
    made.add_argument("--kubeconfig", type=Path, help="how to reach the cluster; default: the pod's account, or the user's")
    made.add_argument("--kubernetes-context", metavar="NAME", help="context in the kubeconfig")
    made.add_argument("--engine", action="append", default=[], metavar="NAME=MODEL@URL", help="one engine; may be repeated")
    made.add_argument("--host", default="127.0.0.1", help="where users' requests come in (default %(default)s)")
    made.add_argument(
        "--port", type=port, default=8100, help="port of users' requests; 0 takes a free one (default %(default)s)"
    )
    made.add_argument("--admin-host", default="127.0.0.1", help="where orders come in (default %(default)s)")
    made.add_argument(
        "--admin-port", type=port, default=8099, help="port of orders; 0 takes a free one (default %(default)s)"
    )
    made.add_argument(
        "--admin-token-file", type=Path, help=f"file with the bearer token of orders (or set {TOKEN_VARIABLE})"
    )
    made.add_argument("--state", type=Path, help="file that keeps drains, weights and operation keys over a restart")
    made.add_argument(
        "--first-byte-timeout", type=float, default=30.0, metavar="S", help="for streams (default %(default)s)"
    )
    made.add_argument(
        "--request-timeout", type=float, default=600.0, metavar="S", help="whole request (default %(default)s)"
    )
    made.add_argument("--seed", type=int, default=0, help="seed of the choice among engines")
    return made


async def serve(look: Look, chosen: DoorSettings) -> None:
    """Run the door until SIGTERM or SIGINT. Raises DiscoveryError when no engine can be found at first."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    found = await asyncio.to_thread(look)
    async with running_door(found.topology, chosen) as door:
        following = asyncio.create_task(follow(door, look))
        sys.stdout.write(
            f"front door: {len(found.topology.engines)} engines, users at {door.url}, orders at {door.admin_url}\n"
        )
        sys.stdout.flush()
        try:
            await stop.wait()
        finally:
            following.cancel()


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 stopped by a signal, 1 could not listen, 2 bad usage or unreadable input."""
    arguments = parser().parse_args(argv)
    try:
        with looking(arguments) as look:
            asyncio.run(serve(look, settings(arguments)))
    except (UsageError, StateFileError, DiscoveryError) as error:
        sys.stderr.write(f"error: {error}\n")
        return BAD_USAGE
    except OSError as error:
        sys.stderr.write(f"error: cannot listen: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
