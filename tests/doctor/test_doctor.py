"""One thing broken at a time: the doctor names it, says how bad it is, and what to do."""

import socket
import sqlite3

import orjson
import pytest
from werkzeug import Request, Response
from whole_set_up import SetUp

from agent.doctor.findings import Check, State, examination
from agent.journal.stored import open_journal
from serving.clock import SystemClock

PROBLEM, WARNING, OK = State.PROBLEM, State.WARNING, State.OK


def wrong(checks: list[Check]) -> list[str]:
    return [f"{check.check} {check.subject}" for check in checks if check.state is not OK]


def test_a_set_up_in_order_has_nothing_but_ok(set_up: SetUp) -> None:
    checks = set_up.checks()
    assert wrong(checks) == []
    assert examination(0.0, checks).exit_code == 0
    assert {"engine.answers", "engine.version", "engine.clock", "engine.signals", "door.admin", "own.journal"} <= {
        check.check for check in checks
    }


def test_every_check_that_is_not_ok_says_what_to_do(set_up: SetUp) -> None:
    set_up.engine.stop()
    set_up.door.stop()
    set_up.admin.stop()
    set_up.metrics = "node_load1 1\n"
    checks = set_up.checks()
    assert wrong(checks)
    assert all(check.todo for check in checks if check.state is not OK)


def test_an_engine_that_is_down_is_a_problem_and_nothing_more_is_asked_of_it(set_up: SetUp) -> None:
    set_up.engine.stop()
    found = [check for check in set_up.checks() if check.check.startswith("engine.")]
    assert [(check.check, check.state) for check in found] == [("engine.answers", PROBLEM)]
    assert "refuses connections" in found[0].says
    assert found[0].details["kind"] == "refused"


@pytest.mark.parametrize(
    ("version", "state", "says"),
    [
        ({"version": "0.32.0"}, OK, "vLLM 0.32.0"),
        ({"version": "0.9.2"}, OK, "vLLM 0.9.2"),
        ({"version": "0.32.1.dev7+gabc"}, OK, "0.32.1.dev7"),
        ({"version": "0.8.5"}, WARNING, "older"),
        ({"version": "0.41.0"}, WARNING, "newer"),
        ({"version": "1.0"}, WARNING, "newer"),
        ({"version": "dev"}, WARNING, "says nothing"),
        ({}, WARNING, "not known"),
        ([], WARNING, "not known"),
    ],
)
def test_versions_out_of_the_known_range_are_said(set_up: SetUp, version: object, state: State, says: str) -> None:
    set_up.version = version
    found = set_up.check("engine.version")
    assert found.state is state
    assert says in found.says


@pytest.mark.parametrize(("off", "state"), [(0.0, OK), (1.5, OK), (-120.0, WARNING), (3600.0, WARNING)])
def test_a_clock_that_differs_is_said_with_how_much(set_up: SetUp, off: float, state: State) -> None:
    set_up.date = SystemClock().now() + off
    found = set_up.check("engine.clock")
    assert found.state is state
    assert found.details["ahead_seconds"] == pytest.approx(off, abs=5.0)
    if state is WARNING:
        assert ("ahead of" if off > 0 else "behind") in found.says


def test_an_engine_of_another_model_than_the_map_says_is_a_problem(set_up: SetUp) -> None:
    set_up.fleet["engines"][0]["model"] = "large"
    found = set_up.check("engine.model")
    assert (found.state, found.details["served"]) == (PROBLEM, ["tiny"])


def test_older_names_are_understood_and_named(set_up: SetUp) -> None:
    set_up.metrics = set_up.metrics.replace("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
    found = set_up.check("engine.signals")
    assert found.state is OK
    assert found.details["older_names"] == {"engine.kv_usage": "vllm:gpu_cache_usage_perc"}
    assert "vllm:gpu_cache_usage_perc for vllm:kv_cache_usage_perc" in found.says


def test_a_signal_that_only_helps_is_a_warning_and_one_that_is_needed_a_problem(set_up: SetUp) -> None:
    whole = set_up.metrics
    set_up.metrics = whole.replace("vllm:engine_sleep_state", "vllm:something_else")
    found = set_up.check("engine.signals")
    assert (found.state, found.details["absent"], found.details["weakened"]) == (WARNING, ["engine.awake"], ["progress"])
    set_up.engine.clear()
    set_up.metrics = whole.replace("vllm:kv_cache_usage_perc", "vllm:something_else")
    found = set_up.check("engine.signals")
    assert (found.state, found.details["blind"]) == (PROBLEM, ["kv"])
    assert "the KV cache is almost full" in found.says


def test_a_door_in_the_place_of_an_engine_is_no_engine(set_up: SetUp) -> None:
    set_up.fleet["engines"][0]["url"], set_up.fleet["gateway"]["url"] = (
        set_up.fleet["gateway"]["url"],
        set_up.fleet["engines"][0]["url"],
    )
    checks = set_up.checks()
    assert {"engine.answers e-0", "door.answers door"} <= set(wrong(checks))


def _guarded(request: Request) -> Response:
    allowed = request.headers.get("Authorization") == "Bearer right"
    return Response(orjson.dumps([]), 200) if allowed else Response(orjson.dumps({"error": "no"}), 401)


@pytest.mark.parametrize(
    ("token", "says", "todo"), [(None, "wants a token", "admin_token_file"), ("old", "not accepted", "renew")]
)
def test_admin_routes_that_want_another_token_are_a_problem(set_up: SetUp, token: str | None, says: str, todo: str) -> None:
    set_up.admin.expect_request("/admin/engines").respond_with_handler(_guarded)
    if token is not None:
        set_up.secret("token", token)
        set_up.fleet["gateway"] |= {"admin_token_file": "token"}
    found = set_up.check("door.admin")
    assert found.state is PROBLEM
    assert says in found.says
    assert todo in found.todo


@pytest.mark.parametrize("answer", [Response("<html>"), Response("{}"), Response("no", 500)])
def test_admin_routes_that_are_something_else_are_a_problem(set_up: SetUp, answer: Response) -> None:
    set_up.admin.expect_request("/admin/engines").respond_with_response(answer)
    assert set_up.check("door.admin").state is PROBLEM


def test_a_door_with_other_engines_than_the_map_is_a_problem(set_up: SetUp) -> None:
    set_up.engines_of_the_door = [{"name": "e-0", "url": "http://10.0.0.9:1"}, {"name": "e-7", "url": "http://10.0.0.7:1"}]
    found = set_up.check("door.engines")
    assert found.state is PROBLEM
    assert (found.details["strange"], found.details["moved"]) == (["e-7"], ["e-0"])


def test_a_map_without_a_door_is_a_warning_that_says_what_is_not_seen(set_up: SetUp) -> None:
    del set_up.fleet["gateway"]
    found = set_up.check("door.signals")
    assert found.state is WARNING
    assert "requests in flight" in found.says
    assert "progress" in found.details["weakened"]


def test_a_journal_that_another_process_holds_locked_is_a_problem(set_up: SetUp) -> None:
    path = set_up.folder / "state" / "journal.sqlite"
    open_journal(path).close()
    assert set_up.check("own.journal").state is OK
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    try:
        found = set_up.check("own.journal")
    finally:
        holder.close()
    assert found.state is PROBLEM
    assert "locked" in found.says


def test_a_journal_that_is_no_journal_is_a_problem_and_stays_as_it_was(set_up: SetUp) -> None:
    path = set_up.folder / "state" / "journal.sqlite"
    path.parent.mkdir()
    path.write_text("a diary, but of another kind\n" * 99)
    assert set_up.check("own.journal").state is PROBLEM
    assert path.read_text().startswith("a diary")


def test_a_state_directory_that_is_a_file_is_a_problem(set_up: SetUp) -> None:
    (set_up.folder / "state").write_text("")
    assert set_up.check("own.state_dir").state is PROBLEM


def test_a_healthy_set_up_is_examined_without_leaving_a_trace(set_up: SetUp) -> None:
    before = sorted(set_up.config.parent.iterdir())
    set_up.checks()
    assert sorted(set_up.folder.iterdir()) == before


def test_ports_that_others_hold_are_problems(set_up: SetUp) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        set_up.fleet["telemetry"] = {"otlp": {"port": held.getsockname()[1]}}
        found = set_up.check("own.otlp_port")
    assert found.state is PROBLEM
    assert "taken" in found.says


def test_with_a_warden_that_runs_its_ports_are_its_own(set_up: SetUp) -> None:
    report = {"healthy": True, "ready": True, "reason": ""}
    set_up.admin.expect_request("/healthz").respond_with_data(orjson.dumps(report))
    set_up.settings["http"] = {"port": set_up.admin.port}
    with socket.create_server(("127.0.0.1", 0)) as held:
        set_up.fleet["telemetry"] = {"otlp": {"port": held.getsockname()[1]}}
        checks = {check.check: check for check in set_up.checks()}
    assert checks["own.warden"].state is OK
    assert checks["own.warden"].details["running"]
    assert checks["own.otlp_port"].state is OK
    assert "own.http_port" not in checks


def test_a_warden_that_runs_and_is_not_healthy_is_a_problem(set_up: SetUp) -> None:
    report = {"healthy": False, "ready": False, "reason": "no step has ended for 60 s"}
    set_up.admin.expect_request("/healthz").respond_with_data(orjson.dumps(report), status=503)
    set_up.settings["http"] = {"port": set_up.admin.port}
    found = set_up.check("own.warden")
    assert found.state is PROBLEM
    assert "no step has ended" in found.says


def test_runbooks_and_parameters_that_cannot_be_used_are_problems_with_their_lines(set_up: SetUp) -> None:
    (set_up.folder / "detectors.yaml").write_text("kv:\n  mean: 7\n")
    set_up.settings["detectors"] = "detectors.yaml"
    found = set_up.check("own.files")
    assert found.state is PROBLEM
    assert "detectors.yaml:2" in found.says


def test_a_secret_that_others_can_read_is_a_warning_and_is_not_shown(set_up: SetUp) -> None:
    set_up.secret("secret", "hush-hush", mode=0o644)
    checks = set_up.checks()
    assert wrong(checks) == [f"own.secrets {set_up.folder / 'secret'}"]
    assert "hush-hush" not in examination(0.0, checks).model_dump_json()


def test_sinks_without_their_secret_are_problems_and_their_urls_are_not_shown(set_up: SetUp) -> None:
    set_up.secret("slack", "https://hooks.slack.com/services/T000/B000/veryprivate")
    set_up.settings["sinks"]["slack"] = {"webhook_url_file": "slack"}
    assert set_up.check("sinks.slack").state is OK
    (set_up.folder / "secret").unlink()
    checks = set_up.checks()
    assert wrong(checks) == ["sinks.webhook hook"]
    assert "veryprivate" not in examination(0.0, checks).model_dump_json()


@pytest.mark.parametrize("text", ["not a url", "", "two\nlines"])
def test_a_slack_webhook_that_is_none_is_a_problem(set_up: SetUp, text: str) -> None:
    set_up.secret("slack", text)
    set_up.settings["sinks"]["slack"] = {"webhook_url_file": "slack"}
    assert set_up.check("sinks.slack").state is PROBLEM


def _receiver(set_up: SetUp, status: int) -> list[Request]:
    taken: list[Request] = []

    def take(request: Request) -> Response:
        taken.append(request)
        return Response("ok" if status == 200 else "no", status)

    set_up.admin.expect_request("/hook").respond_with_handler(take)
    set_up.secret("slack", set_up.admin.url_for("/hook"))
    set_up.settings["sinks"] = {
        "slack": {"webhook_url_file": "slack"},
        "webhooks": [{"name": "hook", "url": set_up.admin.url_for("/hook"), "signing_secret_file": "secret"}],
    }
    return taken


def test_nothing_is_sent_unless_it_is_asked_for(set_up: SetUp) -> None:
    taken = _receiver(set_up, 200)
    set_up.checks()
    assert taken == []


def test_a_test_message_says_that_it_is_a_test(set_up: SetUp) -> None:
    taken = _receiver(set_up, 200)
    sent = [check for check in set_up.checks(send=True) if check.check == "sinks.test"]
    assert [check.state for check in sent] == [OK, OK]
    assert len(taken) == 2
    assert all(b"test" in request.get_data() for request in taken)


def test_a_receiver_that_refuses_the_test_is_a_problem(set_up: SetUp) -> None:
    _receiver(set_up, 404)
    sent = [check for check in set_up.checks(send=True) if check.check == "sinks.test"]
    assert [check.state for check in sent] == [PROBLEM, PROBLEM]
    assert all("404" in check.says for check in sent)


def test_a_fleet_file_alone_is_examined_without_settings(set_up: SetUp) -> None:
    checks = set_up.checks_of_fleet()
    assert wrong(checks) == []
    assert not {check.check for check in checks} & {"own.journal", "sinks", "own.state_dir"}


def test_urls_alone_are_told_apart_and_examined(set_up: SetUp) -> None:
    base = set_up.fleet["engines"][0]["url"]
    checks = set_up.checks_of_urls(base, set_up.fleet["gateway"]["url"], "http://127.0.0.1:1")
    names = {check.check for check in checks}
    assert {"engine.answers", "engine.signals", "door.answers", "url"} <= names
    assert wrong(checks) == ["url http://127.0.0.1:1"]


def _store(set_up: SetUp, *, ahead: float, scalars: list[object], buildinfo: Response | None = None) -> None:
    """A stand-in that speaks as much of Prometheus' API as is asked."""

    def query(request: Request) -> Response:
        asked, now = request.args["query"], SystemClock().now() + ahead
        result: list[object] = []
        if asked.startswith("vector("):
            result = [{"metric": {}, "value": [now, str(now)]}]
        elif asked.startswith("{__name__") and "_bucket" not in asked:
            result = scalars
        elif asked.startswith("timestamp(") or "timestamp(" in asked:
            result = [
                {"metric": {"job": "vllm", "instance": "10.0.0.1:8000"}, "value": [now, str(now - 1)]} for _ in scalars[:1]
            ]
        return Response(orjson.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}))

    def query_range(request: Request) -> Response:
        end = float(request.args["end"])
        points = [[end - back, str(end - back - (end - back) % 2)] for back in range(60, -1, -1)]
        result = [{"metric": {"instance": "10.0.0.1:8000"}, "values": points}]
        return Response(orjson.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}))

    set_up.admin.expect_request("/api/v1/query").respond_with_handler(query)
    set_up.admin.expect_request("/api/v1/query_range").respond_with_handler(query_range)
    if buildinfo is not None:
        set_up.admin.expect_request("/api/v1/status/buildinfo").respond_with_response(buildinfo)


def _scalar(name: str) -> dict[str, object]:
    labels = {"__name__": name, "job": "vllm", "instance": "10.0.0.1:8000", "model_name": "m"}
    return {"metric": labels, "value": [0, "1"]}


def test_a_prometheus_is_asked_for_its_version_clock_pace_and_engines(set_up: SetUp) -> None:
    build = Response(orjson.dumps({"status": "success", "data": {"version": "2.42.0"}}))
    _store(set_up, ahead=0.0, scalars=[_scalar("up"), _scalar("vllm:num_requests_running")], buildinfo=build)
    checks = {check.check: check for check in set_up.checks_of_urls(set_up.admin.url_for(""))}
    assert checks["store.version"].details["version"] == "2.42.0"
    assert checks["store.clock"].state is OK
    assert checks["store.pace"].details["seconds"] == pytest.approx(2.0)
    assert checks["store.engines"].state is OK
    assert checks["store.door"].state is WARNING
    assert "kv" in checks["store.signals"].details["blind"]


@pytest.mark.parametrize(("ahead", "state"), [(3.5, WARNING), (-60.0, PROBLEM)])
def test_a_prometheus_whose_clock_is_wrong_makes_samples_look_old(set_up: SetUp, ahead: float, state: State) -> None:
    _store(set_up, ahead=ahead, scalars=[_scalar("up"), _scalar("vllm:num_requests_running")])
    (found,) = [check for check in set_up.checks_of_urls(set_up.admin.url_for("")) if check.check == "store.clock"]
    assert found.state is state


def test_a_prometheus_without_engines_or_without_these_engines_is_a_problem(set_up: SetUp) -> None:
    _store(set_up, ahead=0.0, scalars=[])
    checks = set_up.checks_of_urls(set_up.admin.url_for(""))
    assert [check.check for check in checks if check.state is PROBLEM] == ["store.engines"]
    set_up.fleet["telemetry"] = {"prometheus": {"url": set_up.admin.url_for("").rstrip("/")}}
    found = [check for check in set_up.checks_of_fleet() if check.check == "store.engines"]
    assert [check.state for check in found] == [PROBLEM]
    assert "e-0" in found[0].says
