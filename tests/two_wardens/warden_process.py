"""A warden as a process of this machine, with a network of its own that can be cut, and what it said so far."""

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from control_plane.orphan_guard import OrphanGuard

from serving.clock import SystemClock
from two_wardens.process import Config
from two_wardens.proxy import CuttableProxy

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Said:
    """One line of a warden, with when it was heard (monotonic)."""

    at: float
    event: str
    facts: dict[str, Any]


class WardenProcess:
    """One of the two. Its process comes and goes; its name, its network and its directory stay."""

    def __init__(self, config: Config, api: CuttableProxy, database: CuttableProxy, guard: OrphanGuard) -> None:
        self.config = config
        self.api, self.database = api, database
        self.said: list[Said] = []
        self._guard = guard
        self._clock = SystemClock()
        self._process: subprocess.Popen[str] | None = None

    @property
    def name(self) -> str:
        return self.config.name

    def start(self) -> None:
        """Start a new process; what it says is added to what was said before."""
        path = Path(self.config.strike).with_name(f"{self.name}.json")
        path.write_text(json.dumps(asdict(self.config)))
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "PYTHONUNBUFFERED": "1"}
        with Path(self.config.strike).with_name(f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "two_wardens.process", str(path)],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
                start_new_session=True,
            )
        self._guard.watch(self._process.pid)
        threading.Thread(target=self._listen, args=(self._process,), daemon=True).start()

    def arm(self, kind: str, point: str) -> None:
        """Let it be struck at its next passing of this point."""
        strike = Path(self.config.strike)
        aside = strike.with_suffix(".new")
        aside.write_text(json.dumps({"kind": kind, "point": point}))
        aside.rename(strike)

    def disarm(self) -> None:
        """Take back a strike that did not come."""
        Path(self.config.strike).unlink(missing_ok=True)

    def thaw(self) -> None:
        """SIGCONT."""
        if self._process is not None:
            os.kill(self._process.pid, signal.SIGCONT)

    def cut(self, *, database: bool) -> None:
        """Cut its way to the API server, and to the journal."""
        self.api.cut()
        if database:
            self.database.cut()

    def heal(self) -> None:
        """Mend both ways."""
        self.api.heal()
        self.database.heal()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def term(self) -> int:
        """The term it leads in by its own words; 0: it follows, or does not run."""
        if not self.running:
            return 0
        told = next((one for one in reversed(self.said) if one.event in {"leads", "follows", "started"}), None)
        return int(told.facts["term"]) if told is not None and told.event == "leads" else 0

    def heard(self, event: str, since: int) -> Said | None:
        """The first such line after the first `since` ones."""
        return next((one for one in self.said[since:] if one.event == event), None)

    def stop(self) -> int:
        """SIGTERM, and SIGKILL to one that does not end; its exit code."""
        if self._process is None:
            return 0
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGCONT)
            self._process.terminate()
        try:
            code = self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait(10)
        self._guard.forget(self._process.pid)
        return code

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                told = json.loads(line)
                self.said.append(Said(self._clock.monotonic(), told.pop("event"), told))


def with_network(config: Config, kubeconfig: Path, api: CuttableProxy, database: CuttableProxy, port: int) -> Config:
    """The same config over these proxies. `port`: the database's own."""
    own = Path(config.strike).with_name(f"{config.name}.kubeconfig")
    text = kubeconfig.read_text().replace(f"127.0.0.1:{_api_port(kubeconfig)}", f"127.0.0.1:{api.port}")
    own.touch(mode=0o600)
    own.write_text(text)
    election = {**config.election, "kubeconfig": str(own)}
    return replace(config, election=election, journal=config.journal.replace(f":{port}/", f":{database.port}/"))


def _api_port(kubeconfig: Path) -> str:
    return kubeconfig.read_text().partition("server: https://127.0.0.1:")[2].partition("\n")[0].strip()
