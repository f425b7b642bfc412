"""Control routes under /sim/: faults, and what this engine is. They answer whatever else hangs."""

import orjson
from aiohttp import web

from serving.simulator.faults import KINDS, FaultBoard, FaultError
from serving.simulator.protocol import json_response
from serving.simulator.settings import SimulatorSettings


class SimRoutes:
    """The handlers."""

    def __init__(self, settings: SimulatorSettings, board: FaultBoard) -> None:
        self._settings = settings
        self._board = board

    def routes(self) -> list[web.RouteDef]:
        """The routes to be added to an application."""
        return [
            web.get("/sim/faults", self.listing),
            web.post("/sim/faults", self.inject),
            web.delete("/sim/faults/{name}", self.clear),
            web.get("/sim/settings", self.settings),
        ]

    async def listing(self, _request: web.Request) -> web.Response:
        """The faults at work, and those that could be."""
        active = [each.describe() for each in self._board.active()]
        return json_response({"active": active, "known": {name: kind.help for name, kind in sorted(KINDS.items())}})

    async def inject(self, request: web.Request) -> web.Response:
        """Make a fault happen."""
        try:
            given = orjson.loads(await request.read())
            return json_response(self._board.inject(given).describe())
        except orjson.JSONDecodeError as error:
            return _refused(FaultError(f"the body is not JSON: {error}"))
        except FaultError as error:
            return _refused(error)

    async def clear(self, request: web.Request) -> web.Response:
        """Undo a fault. That it was not there is no error: the engine is then as asked for."""
        name = request.match_info["name"]
        try:
            return json_response({"fault": name, "cleared": self._board.clear(name)})
        except FaultError as error:
            return _refused(error)

    async def settings(self, _request: web.Request) -> web.Response:
        """What the engine was started with."""
        return json_response(self._settings.model_dump(mode="json"))


def _refused(error: FaultError) -> web.Response:
    return json_response({"error": str(error)}, status=error.status)
