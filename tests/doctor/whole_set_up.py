"""A whole set-up on real ports that is in order, for tests to break one thing of."""

import socket
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path
from typing import Any

import orjson
import yaml
from pytest_httpserver import HTTPServer
from werkzeug import Response

from agent.doctor.examining import of_fleet, of_urls, of_warden
from agent.doctor.findings import Check
from agent.settings_file import load_settings
from serving.clock import SystemClock
from serving.fleet.fleet_file import FleetFile
from serving.telemetry.registry import load_registry

EXPOSITION = (Path(__file__).parents[1] / "recordings" / "vllm-0.32-a" / "exposition-0.32.0.txt").read_text()
DOOR = "".join(
    f'{name}{{replica="e-0",model="tiny"{more}}} 1\n'
    for name, more in (("door:inflight_requests", ""), ("door:requests_finished_total", ',result="ok"'))
)


class SetUp:
    """Engine, front door and its admin routes as servers, and the files that name them. Change, then `checks()`."""

    def __init__(self, folder: Path, server: Callable[[], HTTPServer]) -> None:
        self.folder = folder
        self.engine, self.door, self.admin = server(), server(), server()
        self.metrics = EXPOSITION
        self.date: float | None = None
        self.version: Any = {"version": "0.32.0"}
        self.fleet: dict[str, Any] = {
            "fleet": "test",
            "engines": [{"name": "e-0", "url": self._url(self.engine), "model": "tiny"}],
            "gateway": {"name": "door", "url": self._url(self.door), "admin_url": self._url(self.admin)},
        }
        self.settings: dict[str, Any] = {
            "state_dir": "state",
            "fleet": "fleet.yaml",
            "http": {"port": free_port()},
            "sinks": {"webhooks": [{"name": "hook", "url": self._url(server()) + "/x", "signing_secret_file": "secret"}]},
        }
        self.engines_of_the_door = [{"name": "e-0", "url": self._url(self.engine)}]
        self.secret("secret", "hush")

    @property
    def config(self) -> Path:
        (self.folder / "fleet.yaml").write_text(yaml.safe_dump(self.fleet))
        (self.folder / "warden.yaml").write_text(yaml.safe_dump(self.settings))
        return self.folder / "warden.yaml"

    def secret(self, name: str, text: str, mode: int = 0o600) -> None:
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(mode)

    def serve(self) -> None:
        """Let all servers answer as things stand."""
        headers = {} if self.date is None else {"Date": formatdate(self.date, usegmt=True)}
        self.engine.expect_request("/metrics").respond_with_response(Response(self.metrics, headers=headers))
        self.engine.expect_request("/health").respond_with_data("")
        self.engine.expect_request("/version").respond_with_data(orjson.dumps(self.version))
        self.door.expect_request("/metrics").respond_with_data(DOOR)
        self.admin.expect_request("/admin/engines").respond_with_data(orjson.dumps(self.engines_of_the_door))

    def checks(self, *, send: bool = False) -> list[Check]:
        """The checks of `doctor --config`."""
        self.serve()
        settings = load_settings(self.config)
        fleet = FleetFile.read(settings.fleet_file)
        return list(of_warden(settings, fleet, load_registry(), SystemClock(), send=send))

    def check(self, name: str, **given: bool) -> Check:
        """The one check called `name`."""
        (found,) = [check for check in self.checks(**given) if check.check == name]
        return found

    def checks_of_fleet(self) -> list[Check]:
        self.serve()
        path = self.config.with_name("fleet.yaml")
        return list(of_fleet(FleetFile.read(path), str(path), load_registry(), SystemClock()))

    def checks_of_urls(self, *urls: str) -> list[Check]:
        self.serve()
        return list(of_urls(urls, load_registry(), SystemClock(), None))

    @staticmethod
    def _url(server: HTTPServer) -> str:
        return server.url_for("").rstrip("/")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
