"""How the tools beside ours are judged: by data, in their favour, and by what they really print."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web
from judge import (
    OURS,
    Judgement,
    Said,
    judged,
    load_judgement,
    of_diagnose,
    of_inference_aiops,
    of_inferpilot,
    of_vllm_doctor,
    of_warden,
)
from old_names import proxies, with_older_names
from summary import Call, summary, table
from tools import VERSIONS, ask, configure_aiops, install

from serving.faults.catalogue import catalogue

FAULTS = ("engine-hang", "worker-hang", "slow-worker", "gc-stall", "prefill-flood", "kv-flood", "engine-kill")


@pytest.fixture(scope="module")
def rules() -> Judgement:
    return load_judgement()


def _check(rule: str, *evidence: str, advice: str = "look") -> dict[str, Any]:
    return {"id": rule, "finding": {"evidence": list(evidence), "recommendations": [advice]}}


def _incident(cause: str, entity: str, **changed: object) -> dict[str, Any]:
    row = {"cause": cause, "entity": entity, "score": 0.8, "enough": True, "ended_at": None, "gone_since": None}
    return row | changed


def test_every_fault_that_is_made_is_known_with_its_cause(rules: Judgement) -> None:
    assert tuple(rules.faults) == FAULTS
    for name, truth in rules.faults.items():
        assert truth.cause in catalogue()[name].causes


def test_every_tool_has_rules(rules: Judgement) -> None:
    assert rules.tools.keys() == {*VERSIONS, *OURS}


def test_the_first_check_that_fires_counts_and_the_engine_where_the_evidence_names_one(rules: Judgement) -> None:
    report = {"checks": [_check("kv_cache_pressure", "127.0.0.1:1 is full"), {"id": "low_throughput", "finding": None}]}
    said = of_vllm_doctor(report, {"127.0.0.1:1": "sim-0", "127.0.0.1:2": "sim-1"})

    verdict = judged(rules, "vllm-doctor", "kv-flood", "sim-0", said)
    assert verdict.right
    assert verdict.engine_named
    assert not judged(rules, "vllm-doctor", "engine-hang", "sim-0", said).right


def test_a_right_cause_behind_a_wrong_one_does_not_count(rules: Judgement) -> None:
    said = of_vllm_doctor({"checks": [_check("prefix_cache_efficiency"), _check("ttft_bottleneck")]}, {})
    assert not judged(rules, "vllm-doctor", "prefill-flood", "sim-0", said).right


def test_silence_while_something_is_broken_is_an_all_clear_and_no_alarm_while_all_is_well(rules: Judgement) -> None:
    quiet = of_vllm_doctor({"checks": [{"id": "low_throughput", "finding": None}]}, {})
    assert judged(rules, "vllm-doctor", "engine-hang", "sim-0", quiet).all_clear
    healthy = judged(rules, "vllm-doctor", "healthy", "sim-0", quiet)
    assert not healthy.all_clear
    assert healthy.alarms == ()


def test_what_fires_while_all_is_well_is_an_alarm(rules: Judgement) -> None:
    said = of_vllm_doctor({"checks": [_check("prefix_cache_efficiency")]}, {})
    assert judged(rules, "vllm-doctor", "healthy", "sim-0", said).alarms == ("prefix_cache_efficiency",)


def test_advice_to_take_capacity_away_is_harmful_only_while_something_is_broken(rules: Judgement) -> None:
    advice = "Consider consolidating replicas if load is consistently low"
    said = of_vllm_doctor({"checks": [_check("low_throughput", advice=advice)]}, {})
    assert judged(rules, "vllm-doctor", "engine-hang", "sim-0", said).harmful == (advice,)
    assert judged(rules, "vllm-doctor", "healthy", "sim-0", said).harmful == ()


@pytest.mark.parametrize(
    ("cause", "fault"),
    [
        ("KV-cache pressure / preemption — the engine is evicting", "kv-flood"),
        ("Queue backpressure — requests are waiting for a running slot.", "prefill-flood"),
    ],
)
def test_the_replica_that_is_broken_is_the_one_that_is_looked_at(rules: Judgement, cause: str, fault: str) -> None:
    ill = {"health": {"healthy": True}, "latency": {"probableCauses": [{"cause": cause, "action": "scale"}]}}
    well = {"health": {"healthy": True}, "latency": {"probableCauses": [{"cause": "No dominant bottleneck", "action": ""}]}}
    said = [*of_inference_aiops("sim-0", well), *of_inference_aiops("sim-1", ill)]

    assert judged(rules, "inference-aiops", fault, "sim-1", said).engine_named
    other = judged(rules, "inference-aiops + older names", fault, "sim-0", said)
    assert not other.right
    assert other.all_clear


def test_a_replica_that_cannot_be_read_counts_as_found_dead(rules: Judgement) -> None:
    unread = of_inference_aiops("sim-0", {"health": {"healthy": False}, "latency": {"error": "refused"}})
    assert judged(rules, "inference-aiops", "engine-kill", "sim-0", unread).right
    assert judged(rules, "inferpilot", "engine-kill", "sim-0", of_inferpilot("sim-0", None)).right


def test_a_verdict_of_health_is_no_alarm_and_an_all_clear_on_the_broken_replica(rules: Judgement) -> None:
    said = of_inferpilot("sim-0", {"verdict": "healthy_or_underutilized", "next_step": ""})
    assert judged(rules, "inferpilot", "healthy", "sim-0", said).alarms == ()
    assert judged(rules, "inferpilot", "engine-hang", "sim-0", said).all_clear


def test_ours_must_name_the_engine_and_come_first(rules: Judgement) -> None:
    hung, other = _incident("engine.hung", "engine/sim-0"), _incident("engine.slow", "engine/sim-1", score=0.9)
    tool = "fleetwarden warden"

    assert judged(rules, tool, "engine-hang", "sim-0", of_warden([hung])).right
    assert not judged(rules, tool, "engine-hang", "sim-1", of_warden([hung])).right
    both = judged(rules, tool, "engine-hang", "sim-0", of_warden([hung, other]))
    assert not both.right
    assert both.harmful == ("engine.slow (sim-1)",)


def test_what_is_over_or_blames_no_engine_is_not_held_against_ours(rules: Judgement) -> None:
    rows = [
        _incident("engine.hung", "engine/sim-0"),
        _incident("overload", "engine/sim-1", score=0.5),
        _incident("overload", "model/sim", score=0.5),
        _incident("engine.slow", "engine/sim-2", score=0.99, gone_since=1.0),
    ]
    verdict = judged(rules, "fleetwarden warden", "engine-hang", "sim-0", of_warden(rows))
    assert verdict.right
    assert verdict.harmful == ()


def test_not_enough_evidence_counts_for_the_slow_worker_alone(rules: Judgement) -> None:
    thin = {"causes": [_incident("engine.slow", "engine/sim-0", enough=False)]}
    assert judged(rules, "fleetwarden diagnose", "slow-worker", "sim-0", of_diagnose(thin)).right
    thin = {"causes": [_incident("engine.hung", "engine/sim-0", enough=False)]}
    assert not judged(rules, "fleetwarden diagnose", "engine-hang", "sim-0", of_diagnose(thin)).right


def test_the_summary_counts_what_was_judged_under_its_documented_keys(rules: Judgement) -> None:
    tool = "fleetwarden warden"
    right = judged(rules, tool, "engine-hang", "sim-0", of_warden([_incident("engine.hung", "engine/sim-0")]))
    well = judged(rules, tool, "healthy", "sim-0", [])
    result = summary([well, right], [Call(tool, 1.0, 0.5)], rules, {"inferpilot": "no network"}, real=False, engines=2)

    assert result.keys() == {"benchmark", "data", "engines", "faults", "missing", "tools", "rules"}
    assert (result["data"], result["faults"]) == ("simulated", ["engine-hang"])
    assert result["missing"] == {"inferpilot": "no network"}
    (row,) = result["tools"]
    assert (row["right_cause_first"], row["engine_named_too"], row["of"]) == (1, 1, 1)
    assert (row["healthy_looks_with_alarm"], row["healthy_looks"], row["harmful_advice"]) == (0, 1, 0)
    assert (row["seconds_p50"], row["cpu_seconds_p50"]) == (1.0, 0.5)
    assert json.loads(json.dumps(result)) == result
    assert all(part.row_count == 1 for part in table(result))


def test_a_renamed_metric_is_told_again_under_its_older_name_and_the_rest_stays() -> None:
    text = 'vllm:kv_cache_usage_perc{engine="0"} 0.5\nvllm:kv_cache_usage_percent 1\nvllm:num_requests_running 2\n'
    assert with_older_names(text) == f'{text}vllm:gpu_cache_usage_perc{{engine="0"}} 0.5\n'


async def test_the_proxy_passes_everything_on_and_says_502_for_an_engine_that_is_gone(unused_tcp_port_factory: Any) -> None:
    async def metrics(_request: web.Request) -> web.Response:
        return web.Response(text="vllm:kv_cache_usage_perc 0.5\n")

    app, engine, ports = web.Application(), unused_tcp_port_factory(), [unused_tcp_port_factory() for _ in range(2)]
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", engine).start()
    first = min(ports)

    def asked() -> list[tuple[int, str]]:
        urls = {"up": f"http://127.0.0.1:{engine}"}
        with proxies(urls, first) as behind:
            found.append(asyncio.run(_get(f"{behind['up']}/metrics")))
            found.append(asyncio.run(_get(f"{behind['up']}/none")))
        with proxies({"gone": f"http://127.0.0.1:{max(ports)}"}, first) as behind:
            found.append(asyncio.run(_get(f"{behind['gone']}/metrics")))
        return found

    found: list[tuple[int, str]] = []
    try:
        await asyncio.to_thread(asked)
    finally:
        await runner.cleanup()
    assert found[0] == (200, "vllm:kv_cache_usage_perc 0.5\nvllm:gpu_cache_usage_perc 0.5\n")
    assert [status for status, _ in found] == [200, 404, 502]


async def _get(url: str) -> tuple[int, str]:
    async with ClientSession() as session, session.get(url) as answer:
        return answer.status, await answer.text()


def test_a_call_is_measured_and_ended_when_it_takes_too_long() -> None:
    done = ask(["sh", "-c", "echo '{\"a\": 1}'; echo oops >&2; exit 3"])
    assert (done.json, done.err, done.code) == ({"a": 1}, "oops\n", 3)
    assert done.seconds > 0
    late = ask(["sleep", "600"], patience=0.2)
    assert late.code == -9
    assert late.json is None


def test_a_tool_that_cannot_be_installed_says_why_and_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("tools.sys.executable", str(tmp_path / "python"))
    tool = install("inferpilot", tmp_path)
    assert tool.bin is None
    assert "uv" in tool.missing


def test_the_configuration_of_a_tool_names_each_replica(tmp_path: Path) -> None:
    configure_aiops(tmp_path / "home", {"sim-0": "http://127.0.0.1:8101"})
    (target,) = json.loads((tmp_path / "home" / "config.yaml").read_text())["targets"]
    assert (target["name"], target["host"], target["vllm_port"]) == ("sim-0", "127.0.0.1", 8101)


def test_a_thing_said_without_engine_is_taken_as_said_of_the_broken_one(rules: Judgement) -> None:
    assert judged(rules, "vllm-doctor", "kv-flood", "sim-3", [Said("preemption_pressure")]).right
