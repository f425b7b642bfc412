"""A stand-in for a Prometheus that scraped a recorded fleet: it answers the range queries of the telemetry sources.

It evaluates what those ask, name patterns and timestamp() of them, as Prometheus does: the newest sample of each series at
each step, unless it is too old, or the target was scraped since without bringing that series again.
"""

import bisect
import gzip
import json
import re
from pathlib import Path
from typing import Any

from aiohttp import web

from serving.telemetry.loop_thread import LoopThread

LOOKBACK = 10.0  # seconds; much shorter than Prometheus' own, for series without a target
SAME_SCRAPE = 0.01  # seconds within which the samples of one scrape lie in the recordings
SELECTOR = re.compile(r'(timestamp\()?\{__name__=~"((?:[^"\\]|\\.)*)"[^}]*\}')
HEARTBEAT = re.compile(r'label_replace\(timestamp\(\{__name__=~"([^"]*)"[^}]*\}\), "(\w+)", "(\w+)"')


class PastStore:
    """Listens on a port of its own; `url` is its base URL. `asked` are the queries so far."""

    def __init__(self, folder: Path) -> None:
        self.asked: list[dict[str, str]] = []
        self._series = list(_series(folder))
        self.begin = min(times[0] for _, times, _ in self._series)
        self.end = max(times[-1] for _, times, _ in self._series)
        self._scrapes = {_target(labels): times for labels, times, _ in self._series if labels["__name__"] == "up"}
        self._thread = LoopThread("past-store")
        self.url = self._thread.run(self._start(), 10.0)

    def close(self) -> None:
        self._thread.close(self._runner.cleanup())

    async def _start(self) -> str:
        application = web.Application()
        application.router.add_route("*", "/api/v1/query_range", self._answer)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _answer(self, request: web.Request) -> web.Response:
        asked = {**request.query, **(await request.post() if request.method == "POST" else {})}
        self.asked.append({name: str(value) for name, value in asked.items()})
        steps = _steps(float(asked["start"]), float(asked["end"]), float(asked["step"]))
        result: list[dict[str, Any]] = []
        for part in str(asked["query"]).split(" or "):
            heartbeat = HEARTBEAT.search(part)
            if heartbeat is not None:
                result += self._evaluated(heartbeat[1], steps, stamps=True, extra={heartbeat[2]: heartbeat[3]})
                continue
            selector = SELECTOR.search(part)
            assert selector is not None, part
            result += self._evaluated(selector[2].replace("\\\\", "\\"), steps, stamps=bool(selector[1]), extra={})
        return web.json_response({"status": "success", "data": {"resultType": "matrix", "result": result}})

    def _evaluated(self, pattern: str, steps: list[float], *, stamps: bool, extra: dict[str, str]) -> list[dict[str, Any]]:
        names = re.compile(pattern)
        found = []
        for labels, times, values in self._series:
            if not names.fullmatch(labels["__name__"]):
                continue
            told = []
            scrapes = self._scrapes.get(_target(labels), times)
            for step in steps:
                at, scrape = bisect.bisect_right(times, step) - 1, bisect.bisect_right(scrapes, step) - 1
                stale = scrape >= 0 and scrapes[scrape] - times[at] > SAME_SCRAPE
                if at >= 0 and step - times[at] <= LOOKBACK and not stale:
                    told.append([step, str(times[at]) if stamps else values[at]])
            if told:
                metric = {name: value for name, value in labels.items() if not (stamps and name == "__name__")}
                found.append({"metric": metric | extra, "values": told})
        return found


def _target(labels: dict[str, str]) -> tuple[str, str]:
    return labels.get("job", ""), labels.get("instance", "")


def _steps(start: float, end: float, step: float) -> list[float]:
    return [start + number * step for number in range(int((end - start) / step + 1e-9) + 1)]


def _series(folder: Path) -> Any:
    with gzip.open(folder / "series.jsonl.gz") as lines:
        every = [json.loads(line) for line in lines]
    for told in every:
        if told["values"]:
            yield told["metric"], [told["t0"] + at for at, _ in told["values"]], [value for _, value in told["values"]]
