"""A range of a Prometheus replayed: the same incidents as the recording that it holds, asked for in bounded pieces."""

import json
from pathlib import Path

import pytest
from aiohttp import web
from past_store import PastStore
from replay_command import run

from agent.replay.past import CHUNK
from serving.telemetry.loop_thread import LoopThread


def test_a_prometheus_tells_the_same_incidents_as_the_recording_of_the_same_time(store: PastStore, recordings: Path) -> None:
    truth = recordings / "vllm-0.32-b" / "events.json"
    result = run("replay", store.url, "--from", store.begin, "--to", store.end, "--labels", truth, "--json")
    assert result.exit_code == 0
    told = json.loads(result.stdout)
    assert told["engines"] == ["tiny-0", "tiny-1", "tiny-2"]
    assert [(row["cause"], row["entity"]) for row in told["rows"]] == [
        ("engine.kv_pressure", "engine/tiny-0"),
        ("engine.kv_pressure", "engine/tiny-1"),
    ]
    pieces = [(float(query["end"]) - float(query["start"])) / float(query["step"]) for query in store.asked]
    assert max(pieces) <= max(CHUNK, 300.0)


def test_a_narrowed_range_asks_with_the_labels_it_is_narrowed_by(store: PastStore) -> None:
    result = run("replay", store.url, "--from", store.begin, "--to", store.begin + 30, "--match", "model=tiny", "--json")
    assert result.exit_code == 0
    assert all('model="tiny"' in query["query"] for query in store.asked[-3:])


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--from", "yesterday-ish"), "is not a moment"),
        (("--from", "now", "--to", "1h"), "no range"),
        (("--match", "nonsense"), "LABEL=VALUE"),
    ],
)
def test_what_was_typed_wrongly_is_said(store: PastStore, arguments: tuple[str, ...], what: str) -> None:
    result = run("replay", store.url, *arguments)
    assert result.exit_code == 2
    assert what in result.stderr


def test_a_range_without_engines_says_what_to_check(store: PastStore) -> None:
    result = run("replay", store.url, "--from", "1000", "--to", "2000")
    assert result.exit_code == 2
    assert store.url in result.stderr
    assert "--from" in result.stderr


def test_nothing_that_listens_is_a_sentence() -> None:
    result = run("replay", "http://127.0.0.1:9")
    assert result.exit_code == 2
    assert "http://127.0.0.1:9 cannot be reached" in result.stderr


def test_a_page_for_people_is_no_prometheus() -> None:
    thread = LoopThread("html")

    async def start() -> tuple[web.AppRunner, str]:
        async def answer(_: web.Request) -> web.Response:
            return web.Response(text="<html>login</html>", content_type="text/html")

        application = web.Application()
        application.router.add_route("*", "/{path:.*}", answer)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"

    runner, url = thread.run(start(), 10.0)
    try:
        result = run("replay", url)
    finally:
        thread.close(runner.cleanup())
    assert result.exit_code == 2
    assert "HTML" in result.stderr
