"""Which signals of GPUs a Prometheus holds."""

import orjson
import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from agent.doctor import gpus
from agent.doctor.findings import Check, State
from serving.clock import SystemClock
from serving.telemetry.registry import Job, load_registry

REGISTRY = load_registry()
FIRST = [spec.names[0] for spec in REGISTRY.of_job(Job.GPU).values() if spec.names[0].startswith("DCGM_")]


def told_of(server: HTTPServer, names: list[str]) -> tuple[Check, str]:
    """The check, and what was asked of a store that holds these series."""
    asked: list[str] = []

    def query(request: Request) -> Response:
        asked.append(request.values["query"])
        result = [{"metric": {"__name__": name}, "value": [0, "1"]} for name in names]
        return Response(orjson.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}))

    server.expect_request("/api/v1/query").respond_with_handler(query)
    (check,) = gpus.examine(server.url_for("").rstrip("/"), REGISTRY, SystemClock(), {"cluster": "eu-1"}, None)
    return check, asked[0]


def test_all_signals_of_gpus_are_asked_for_at_once_and_only_of_the_own_cluster(httpserver: HTTPServer) -> None:
    check, query = told_of(httpserver, FIRST)
    assert check.state is State.OK
    assert query.endswith('", cluster="eu-1"})')
    assert all(name in query for name in FIRST)


def test_an_older_name_counts_as_well(httpserver: HTTPServer) -> None:
    older = ["DCGM_FI_DEV_CLOCK_THROTTLE_REASONS" if "EVENT_REASONS" in name else name for name in FIRST]
    assert told_of(httpserver, older)[0].state is State.OK


@pytest.mark.parametrize(
    ("names", "says"), [([], "no series of the DCGM exporter"), (["DCGM_FI_DEV_XID_ERRORS"], "absent: ")]
)
def test_what_is_absent_is_a_warning_with_what_to_do(httpserver: HTTPServer, names: list[str], says: str) -> None:
    check, _ = told_of(httpserver, names)
    assert (check.check, check.state) == ("store.gpus", State.WARNING)
    assert says in check.says
    assert "dcgm-exporter" in check.todo
    assert ("gpu.xid" in check.details["absent"]) is not bool(names)


def test_a_store_that_fails_is_a_problem(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/api/v1/query").respond_with_data("no", status=500)
    (check,) = gpus.examine(httpserver.url_for("").rstrip("/"), REGISTRY, SystemClock(), {}, None)
    assert check.state is State.PROBLEM
