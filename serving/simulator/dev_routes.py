"""The routes that show and steer an engine: health, version, load, and the development mode's pause, sleep and abort.

What vLLM asks its engine core for waits here too while the engine hangs: a hung engine cannot be paused.
"""

import re

import orjson
from aiohttp import web

from serving.simulator.driver import EngineDriver
from serving.simulator.openai_routes import OpenAiRoutes
from serving.simulator.protocol import ApiError, json_response
from serving.simulator.scheduling import Pause
from serving.simulator.settings import VLLM_VERSION, SimulatorSettings

_MODES = ("abort", "wait", "keep")
_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"0", "false", "no", "off"}


class PlainRoutes:
    """Health, version and load."""

    def __init__(self, settings: SimulatorSettings, driver: EngineDriver, openai: OpenAiRoutes) -> None:
        self._settings = settings
        self._driver = driver
        self._openai = openai

    def routes(self) -> list[web.RouteDef]:
        """The routes to be added to an application."""
        return [
            web.get("/health", self.health, allow_head=False),
            web.get("/ping", self.health, allow_head=False),
            web.post("/ping", self.health),
            web.get("/version", self.version),
            web.get("/load", self.show_load),
        ]

    async def health(self, _request: web.Request) -> web.Response:
        """200 unless the engine died; a hung one is as healthy as any, as in vLLM."""
        return web.Response(status=503 if self._driver.dead else 200)

    async def version(self, _request: web.Request) -> web.Response:
        """The version of vLLM that is simulated."""
        return json_response({"version": VLLM_VERSION})

    async def show_load(self, _request: web.Request) -> web.Response:
        """Requests in flight, where that is tracked; 0 otherwise, as in vLLM."""
        return json_response({"server_load": self._openai.load if self._settings.enable_server_load_tracking else 0})


class DevRoutes:
    """What vLLM opens in its development mode."""

    def __init__(self, driver: EngineDriver) -> None:
        self._driver = driver
        self._sleeping = False

    def routes(self) -> list[web.RouteDef]:
        """The routes to be added to an application."""
        return [
            web.get("/is_paused", self.is_paused),
            web.post("/pause", self.pause),
            web.post("/resume", self.resume),
            web.post("/sleep", self.sleep),
            web.post("/wake_up", self.wake_up),
            web.get("/is_sleeping", self.is_sleeping),
            web.post("/reset_prefix_cache", self.reset_prefix_cache),
            web.post("/abort_requests", self.abort_requests),
        ]

    async def is_paused(self, _request: web.Request) -> web.Response:
        """Whether the scheduler is paused."""
        await self._driver.reach_engine()
        return json_response({"is_paused": self._paused})

    async def pause(self, request: web.Request) -> web.Response:
        """Pause the scheduler; requests in flight are aborted, waited for or kept, by `mode`."""
        await self._pause(_mode(request), clear_cache=_flag(request, "clear_cache", default=True))
        return json_response({"status": "paused"})

    async def resume(self, _request: web.Request) -> web.Response:
        """Let the scheduler go on."""
        await self._driver.reach_engine()
        self._driver.pause(Pause.NONE)
        return json_response({"status": "resumed"})

    async def sleep(self, request: web.Request) -> web.Response:
        """Pause, and from level 1 on give the memory away."""
        level = _level(request)
        await self._pause(_mode(request), clear_cache=level >= 1)
        self._sleeping = level >= 1
        self._driver.frontend.measures.sleep_level = level
        return json_response({"status": "sleeping", "level": level})

    async def wake_up(self, request: web.Request) -> web.Response:
        """Take the memory back and go on. `tags` are answered as given: simulated memory comes back as a whole."""
        await self._driver.reach_engine()
        self._sleeping = False
        self._driver.pause(Pause.NONE)
        self._driver.frontend.measures.sleep_level = None
        return json_response({"status": "awake", "tags": request.query.getall("tags", []) or None})

    async def is_sleeping(self, _request: web.Request) -> web.Response:
        """Whether the engine sleeps at any level; a paused one counts, as in vLLM."""
        await self._driver.reach_engine()
        return json_response({"is_sleeping": self._sleeping or self._paused})

    async def reset_prefix_cache(self, request: web.Request) -> web.Response:
        """Forget cached prefixes; fails while blocks are in use."""
        for name in ("reset_running_requests", "reset_external"):
            _flag(request, name, default=False)
        await self._driver.reach_engine()
        return json_response({"success": self._driver.engine.scheduler.pool.forget()})

    async def abort_requests(self, request: web.Request) -> web.Response:
        """Abort the requests named in `request_ids`, or all of them."""
        try:
            body = orjson.loads(await request.read())
        except orjson.JSONDecodeError as error:
            raise ApiError("Invalid JSON format", kind="Bad Request") from error
        if not isinstance(body, dict):
            raise ApiError("Request body must be a JSON object", kind="Bad Request")
        named = body.get("request_ids") or ()
        if not isinstance(named, list | tuple) or not all(isinstance(each, str) for each in named):
            raise ApiError("request_ids must be a list of strings", kind="Bad Request", param="request_ids")
        chosen = tuple(named) or self._driver.frontend.in_flight
        self._driver.abort(chosen)
        return json_response({"status": "aborted", "aborted": len(chosen)})

    @property
    def _paused(self) -> bool:
        return self._driver.engine.scheduler.pause is not Pause.NONE

    async def _pause(self, mode: str, *, clear_cache: bool) -> None:
        await self._driver.reach_engine()
        scheduler = self._driver.engine.scheduler
        wanted = Pause.ALL if mode == "keep" else Pause.NEW
        self._driver.pause(wanted)
        if mode == "abort":
            with self._driver.changing() as now:
                self._driver.engine.abort_all(now)
        await self._driver.until(lambda: scheduler.pause is wanted and (mode == "keep" or not scheduler.running))
        if clear_cache:
            scheduler.pool.forget()


def _mode(request: web.Request) -> str:
    mode = request.query.get("mode", "abort")
    if mode not in _MODES:
        raise _bad_query("mode", f"Input should be 'abort', 'wait' or 'keep', not {mode!r}")
    return mode


def _level(request: web.Request) -> int:
    level = request.query.get("level", "1")
    if not re.fullmatch(r"[012]", level):
        raise _bad_query("level", f"Input should be 0, 1 or 2, not {level!r}")
    return int(level)


def _flag(request: web.Request, name: str, *, default: bool) -> bool:
    given = request.query.get(name)
    if given is None:
        return default
    if given.lower() not in _TRUE | _FALSE:
        raise _bad_query(name, f"Input should be a valid boolean, not {given!r}")
    return given.lower() in _TRUE


def _bad_query(name: str, message: str) -> ApiError:
    return ApiError(f"1 validation error:\n  query.{name}: {message}", kind="Bad Request", param=f"query.{name}")
