"""This machine: versions, the files that steer the warden, its state directory and journal, the ports it wants."""

import asyncio
import errno
import os
import platform
import shutil
import socket
import sqlite3
import stat
import tempfile
from importlib import metadata
from pathlib import Path

import orjson

from agent.checkup import asking
from agent.checkup.asking import Heard
from agent.doctor.findings import Check, ok, problem, warning
from agent.journal.port import JournalError
from agent.journal.stored import open_journal
from agent.maps import Maps
from agent.settings import WardenSettings
from agent.wiring import make_actuators, make_minds
from serving.clock import Clock
from serving.engines.local import LocalEngines
from serving.fleet.fleet_file import FleetFile
from serving.yaml_file import FileError

LEAST_FREE = 1_000_000_000  # bytes; a journal of a busy fleet grows by tens of megabytes a week
PATIENCE_S = 2.0
SECONDS = 3.0
_OK = 200


def versions() -> list[Check]:
    """Which versions run here."""
    names = ("vllm", "prometheus-api-client", "aiohttp")
    found = {name: _installed(name) for name in names}
    own = metadata.version("fleetwarden")
    return [
        ok("own.version", "this machine", f"fleetwarden {own}, Python {platform.python_version()}", fleetwarden=own, **found)
    ]


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def examine(settings: WardenSettings, fleet: FleetFile, clock: Clock) -> list[Check]:
    """Everything of the warden's own that the settings name. Settings and fleet file themselves were read already."""
    running = _warden(settings, clock)
    return [
        *_parts(settings, fleet, clock),
        _directory(settings.state_dir),
        _journal(settings),
        *secrets(fleet, settings),
        running,
        *_ports(settings, fleet, running="running" in running.details),
    ]


def _parts(settings: WardenSettings, fleet: FleetFile, clock: Clock) -> list[Check]:
    """Detector parameters and runbooks, read as the warden reads them."""
    try:
        actuators = make_actuators(fleet, Maps(fleet.topology), LocalEngines(settings.state_dir, clock), clock, dry=True)
        minds = make_minds(settings, fleet, actuators)
    except FileError as refused:
        return [problem("own.files", one.file, str(one), "correct the line that is named") for one in refused.problems]
    runbooks = sorted({book.name for book in minds.runbooks.values()})
    says = f"detector parameters and {len(runbooks)} runbooks are valid for this fleet"
    return [ok("own.files", "warden", says, runbooks=runbooks, verbs=sorted(actuators.verbs))]


def _directory(path: Path) -> Check:
    check, subject = "own.state_dir", str(path)
    there = next((one for one in (path, *path.absolute().parents) if one.exists()), Path("/"))
    if not there.is_dir():
        return problem(check, subject, f"{there} is no directory", "name another state_dir")
    try:
        with tempfile.TemporaryFile(dir=there):  # unnamed, and gone with the line
            pass
    except OSError as refused:
        says = f"nothing can be written in {there}: {refused.strerror}"
        return problem(check, subject, says, "change its owner or rights, or name another state_dir")
    free = shutil.disk_usage(there).free
    if free < LEAST_FREE:
        says = f"only {free / 1e6:.0f} MB are free: without room for its journal the warden does nothing"
        return problem(check, subject, says, "free some room, or name another state_dir", free_bytes=free)
    says = "can be written" if there == path else "does not exist yet and can be made"
    return ok(check, subject, f"{says}, {free / 1e9:.0f} GB free", free_bytes=free)


def _journal(settings: WardenSettings) -> Check:
    check = "own.journal"
    try:
        url = settings.journal_url().get_secret_value()
    except FileError as refused:
        return problem(check, "journal", str(refused), "write the journal's URL into that file")
    path = Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite:///") else None
    subject = str(path) if path is not None else "database"
    if path is not None and not path.exists():
        return ok(check, subject, "does not exist yet; the warden makes it")
    try:
        journal = open_journal(url, create=False, patience=PATIENCE_S)
        journal.close()
    except JournalError as refused:
        return problem(check, subject, str(refused), "see the sentence; nothing was changed")
    refused_because = _unwritable(path) if path is not None else ""
    if refused_because:
        return problem(
            check, subject, f"can be read and not written: {refused_because}", "change owner or rights of the file"
        )
    return ok(check, subject, "can be read and written" if path is not None else "can be read")


def _unwritable(path: Path) -> str:
    """Why no transaction that writes can begin, or nothing. None is carried out."""
    if not os.access(path, os.W_OK):
        return "this user may not write the file"
    try:
        connection = sqlite3.connect(path, timeout=PATIENCE_S, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        finally:
            connection.close()
    except sqlite3.Error as refused:
        return str(refused)
    return ""


def secrets(fleet: FleetFile, settings: WardenSettings | None) -> list[Check]:
    """Files with secrets that others on this machine may read."""
    files = [fleet.gateway.admin_token_file if fleet.gateway else None]
    files.append(fleet.telemetry.prometheus.bearer_token_file if fleet.telemetry.prometheus else None)
    if settings is not None:
        files.append(settings.sinks.slack.webhook_url_file if settings.sinks.slack else None)
        files += [webhook.signing_secret_file for webhook in settings.sinks.webhooks]
        files.append(settings.journal.url_file)
    return [_open_to_others(file) for file in files if file is not None and file.exists() and _readable_by_others(file)]


def _readable_by_others(file: Path) -> bool:
    """Whether more users can read it than need to. In a pod a Secret is root's, and its group is how we read it at all."""
    told = file.stat()
    through_group = told.st_uid != os.geteuid() and told.st_gid in {os.getegid(), *os.getgroups()}
    return bool(told.st_mode & (stat.S_IROTH if through_group else stat.S_IRGRP | stat.S_IROTH))


def _open_to_others(file: Path) -> Check:
    return warning("own.secrets", str(file), "others on this machine can read this secret", f"run `chmod 600 {file}`")


def _warden(settings: WardenSettings, clock: Clock) -> Check:
    """Whether a warden with these settings runs, by its own /healthz."""
    check, http = "own.warden", settings.http
    if not http.port:
        return ok(check, "warden", "its HTTP port is chosen at each start, so whether one runs is not known")
    url = f"http://{http.host if http.host != '0.0.0.0' else '127.0.0.1'}:{http.port}/healthz"  # noqa: S104 - compared only

    async def ask() -> Heard | asking.Unheard:
        async with asking.session() as asks:
            return await asking.get(asks, url, clock, SECONDS)

    heard = asyncio.run(ask())
    if not isinstance(heard, Heard):
        return ok(check, "warden", "none runs now with these settings")
    try:
        said = orjson.loads(heard.body)
    except orjson.JSONDecodeError:
        said = None
    if not isinstance(said, dict) or "healthy" not in said:
        says = f"something else than a warden answers at {url}"
        return problem(check, "warden", says, "free that port, or choose another http.port")
    if heard.status == _OK:
        return ok(check, "warden", f"one runs here and is healthy ({url})", running=True)
    reason = str(said.get("reason") or "no reason given")
    return problem(check, "warden", f"one runs here and is not healthy: {reason}", "look at its log", running=True)


def _ports(settings: WardenSettings, fleet: FleetFile, *, running: bool) -> list[Check]:
    """The ports that the warden listens on: free, or its own."""
    wanted = [("own.http_port", "http", settings.http.host, settings.http.port)] if not running else []
    return [port_free(*one, running=running) for one in wanted] + otlp(fleet, running=running)


def otlp(fleet: FleetFile, *, running: bool | None) -> list[Check]:
    """The port of the trace receiver, where one is wanted. `running`: whether a warden runs here; None: not known."""
    entry = fleet.telemetry.otlp
    if entry is None:
        says = "no receiver is named: stage times of single requests are not known, and no detector needs them"
        return [ok("own.otlp_port", "otlp", says)]
    return [port_free("own.otlp_port", "otlp", entry.host, entry.port, running=running)]


def port_free(check: str, subject: str, host: str, port: int, *, running: bool | None) -> Check:
    """Whether a listener could be opened there; a warden that runs holds its ports itself (None: not known)."""
    if not port:
        return ok(check, subject, "any free port is taken")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((host, port))
        except OSError as refused:
            if refused.errno == errno.EADDRINUSE and running:
                return ok(check, subject, f"port {port} is held, by the warden that runs as far as can be told")
            if refused.errno == errno.EADDRINUSE and running is None:
                return warning(check, subject, f"{host}:{port} is taken", "well if a running warden has it; else free it")
            what = "is taken" if refused.errno == errno.EADDRINUSE else f"cannot be had: {refused.strerror}"
            return problem(check, subject, f"{host}:{port} {what}", f"free it, or name another port for {subject}")
    return ok(check, subject, f"port {port} is free")
