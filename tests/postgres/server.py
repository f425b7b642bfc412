"""A PostgreSQL server with its files in a directory of its own; run as nobody where we are root, whom it refuses."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import psycopg
from control_plane.orphan_guard import OrphanGuard
from control_plane.server import free_ports
from control_plane.waiting import until

HOST, USER = "127.0.0.1", "postgres"
READY_S = 60.0
# Nothing here outlives a power cut, so nothing need reach the disk.
OPTIONS = {
    "listen_addresses": HOST,
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "100",
    "shared_buffers": "16MB",
}


class NoPostgresError(Exception):
    """The programs of PostgreSQL are not on this machine; the message says what to install."""


def programs() -> Path:
    """The folder with initdb and postgres: the newest that Debian installed, or where PATH finds them."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    on_path = shutil.which("postgres")
    if on_path is None:
        raise NoPostgresError("no PostgreSQL here: apt-get install postgresql-15 (only its programs are used)")
    return Path(on_path).parent


class PostgresServer:
    """A running server. `freeze`, `thaw` and `restart` are for tests."""

    def __init__(self, directory: Path, guard: OrphanGuard) -> None:
        (self.port,) = free_ports(1)
        self._directory = directory
        self._guard = guard
        self._bin = programs()
        self._numbers = count()
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, database: str, port: int | None = None) -> str:
        """As SQLAlchemy takes it."""
        return f"postgresql+psycopg://{USER}@{HOST}:{port or self.port}/{database}"

    def new_database(self) -> str:
        """Make an empty database; its name."""
        name = f"test_{next(self._numbers)}"
        with self._connect() as connection:
            connection.execute(f"CREATE DATABASE {name} STRATEGY file_copy")
        return name

    def initialise(self) -> None:
        """Make the files, with trust in everybody of this machine."""
        command = [str(self._bin / "initdb"), "-D", str(self._directory / "data"), "-U", USER]
        options = ["--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"]
        done = subprocess.run([*command, *options], capture_output=True, text=True, **_somebody(), check=False)
        if done.returncode != 0:
            raise RuntimeError(f"initdb failed: {done.stderr}")

    def start(self) -> None:
        """Start it and wait until it answers."""
        options = {**OPTIONS, "port": str(self.port), "unix_socket_directories": str(self._directory)}
        command = [str(self._bin / "postgres"), "-D", str(self._directory / "data")]
        command += [f"--{name}={value}" for name, value in options.items()]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, **_somebody())
        self._guard.watch(self._process.pid)
        until(self._answers, READY_S, lambda: f"PostgreSQL answers: {(self._directory / 'log').read_text()[-2000:]}")

    def stop(self) -> None:
        """End it at once, with every session."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGCONT)
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(timeout=30)
            self._guard.forget(self._process.pid)
            self._process = None

    def _answers(self) -> bool:
        if self._process is not None and self._process.poll() is not None:
            raise RuntimeError(f"PostgreSQL ended: {(self._directory / 'log').read_text()[-2000:]}")
        try:
            self._connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def _connect(self) -> psycopg.Connection:
        return psycopg.connect(host=HOST, port=self.port, user=USER, dbname="postgres", autocommit=True, connect_timeout=5)


@contextmanager
def running_server() -> Iterator[PostgresServer]:
    """A started server, gone with its files at the end. Raises NoPostgresError."""
    programs()
    directory = Path(tempfile.mkdtemp(prefix="fleetwarden-postgres-"))  # the user nobody must be able to enter it
    if os.getuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.chown(directory, nobody.pw_uid, nobody.pw_gid)
    try:
        with OrphanGuard() as guard:
            server = PostgresServer(directory, guard)
            server.initialise()
            server.start()
            try:
                yield server
            finally:
                server.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _somebody() -> dict[str, object]:
    """Whom to run as, as subprocess takes it."""
    if os.getuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": [], "cwd": "/"}
