"""Stand-ins for what telemetry talks to: small HTTP servers on a thread of their own, and maps of their engines."""

import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from aiohttp import web

from serving.fleet.topology import EngineFacts, Topology
from serving.telemetry.loop_thread import LoopThread

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Server:
    """An HTTP server whose answers a test may change while it runs."""

    handler: Handler
    requests: list[web.Request] = field(default_factory=list)
    peers: list[object] = field(default_factory=list)
    url: str = ""
    _runner: web.AppRunner | None = None

    async def start(self, port: int = 0) -> None:
        application = web.Application(client_max_size=1 << 28)
        application.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        if request.transport is not None:
            self.peers.append(request.transport.get_extra_info("peername"))
        return await self.handler(request)


class Servers:
    """Starts and stops servers on one thread."""

    def __init__(self) -> None:
        self._thread = LoopThread("test-servers")
        self._servers: list[Server] = []
        self._ended = threading.Event()

    def start(self, handler: Handler) -> Server:
        server = Server(handler)
        self._thread.run(server.start(), 10.0)
        self._servers.append(server)
        return server

    @property
    def urls(self) -> list[str]:
        return [server.url for server in self._servers]

    def held(self, seconds: float) -> list[object]:
        """Block the calling thread until the test ends, at most for `seconds`."""
        self._ended.wait(seconds)
        return []

    def stop(self, server: Server) -> None:
        self._thread.run(server.stop(), 10.0)

    def restart(self, server: Server) -> None:
        """Stop the server, if it runs, and start it again at its address."""
        self.stop(server)
        self._thread.run(server.start(int(server.url.rsplit(":", 1)[1])), 10.0)

    def close(self) -> None:
        self._ended.set()
        for server in self._servers:
            self.stop(server)
        self._thread.close()


def answering(text: str | bytes, *, status: int = 200, content_type: str = "text/plain", **headers: str) -> Handler:
    """A handler that always answers `text`."""

    async def handler(_: web.Request) -> web.Response:
        body = text.encode() if isinstance(text, str) else text
        return web.Response(body=body, status=status, content_type=content_type, headers=headers)

    return handler


def fleet(**urls: str) -> Topology:
    """A map of engines of one model, by name and URL."""
    return Topology([EngineFacts(name.replace("_", "-"), url, "tiny") for name, url in urls.items()])
