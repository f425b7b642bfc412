"""The engines once more, each behind a proxy that exports some metrics under their older names, too.

For tools that only know those. All else is passed on as it is; an engine that does not answer is a 502 here.
"""

import asyncio
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import aiohttp
from aiohttp import web

HOST = "127.0.0.1"
TIMEOUT_S = 10.0

# What inference-aiops 0.12.0 asks for, by what vLLM calls it today.
OLDER = {
    "vllm:kv_cache_usage_perc": "vllm:gpu_cache_usage_perc",
    "vllm:request_time_per_output_token_seconds": "vllm:time_per_output_token_seconds",
}


def with_older_names(exposition: str, older: Mapping[str, str] = OLDER) -> str:
    """`exposition` with every sample of a renamed metric told again under its older name."""
    pattern = re.compile(rf"^({'|'.join(map(re.escape, older))})((?:_bucket|_sum|_count)?[{{ ].*)$", re.MULTILINE)
    again = [f"{older[found[1]]}{found[2]}" for found in pattern.finditer(exposition)]
    return "\n".join([exposition.rstrip("\n"), *again, ""])


@contextmanager
def proxies(engines: Mapping[str, str], first_port: int) -> Iterator[dict[str, str]]:
    """Base URLs of the proxies by engine, served from a thread until the end of the block."""
    ports = {name: first_port + number for number, name in enumerate(engines)}
    loop, ready = asyncio.new_event_loop(), threading.Event()
    ended = asyncio.Event()
    failed: list[BaseException] = []

    async def serve() -> None:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            runners = []
            for name, url in engines.items():
                runner = web.AppRunner(_app(session, url), access_log=None)
                await runner.setup()
                await web.TCPSite(runner, HOST, ports[name]).start()
                runners.append(runner)
            ready.set()
            await ended.wait()
            for runner in runners:
                await runner.cleanup()

    def run() -> None:
        try:
            loop.run_until_complete(serve())
        except BaseException as error:  # noqa: BLE001 - told to the one who waits
            failed.append(error)
            ready.set()
        finally:
            loop.close()

    thread = threading.Thread(target=run, name="older names")
    thread.start()
    ready.wait()
    try:
        if failed:
            raise failed[0]
        yield {name: f"http://{HOST}:{port}" for name, port in ports.items()}
    finally:
        if not failed:
            loop.call_soon_threadsafe(ended.set)
        thread.join()


def _app(session: aiohttp.ClientSession, url: str) -> web.Application:
    async def passed_on(request: web.Request) -> web.Response:
        try:
            async with session.get(f"{url}{request.path_qs}") as answer:
                text = await answer.text()
        except (aiohttp.ClientError, TimeoutError) as error:
            return web.Response(status=502, text=f"{type(error).__name__}: {error}")
        if request.path == "/metrics":
            text = with_older_names(text)
        return web.Response(status=answer.status, text=text, content_type="text/plain")

    app = web.Application()
    app.router.add_get("/{path:.*}", passed_on)
    return app
