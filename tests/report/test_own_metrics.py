"""The warden's own metrics, judged by the official parser."""

from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families
from told_lives import HUNG, NIGHT, Life, approval_request, escalated_hang, repaired_hang

from actuators.action import OutcomeStatus
from agent.decision.decision import Decision, Reason, Verdict
from agent.incident import fold
from agent.own_metrics import OwnMetrics
from serving.fleet.relations import PROMETHEUS, SCRAPE
from serving.telemetry.window import SourceStatus


def samples(metrics: OwnMetrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    found = {}
    for family in text_string_to_metric_families(metrics.exposition().decode()):
        for sample in family.samples:
            found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return found


def value(metrics: OwnMetrics, name: str, **labels: str) -> float | None:
    return samples(metrics).get((name, tuple(sorted(labels.items()))))


@pytest.fixture
def metrics() -> OwnMetrics:
    return OwnMetrics("0.1.0")


def test_every_family_has_help_a_type_and_the_prefix(metrics: OwnMetrics) -> None:
    families = list(text_string_to_metric_families(metrics.exposition().decode()))
    for family in families:
        assert family.documentation
        assert family.type != "unknown"
        assert family.name.startswith(("fleetwarden_", "process_"))
    assert len({family.name for family in families}) == len(families)


def test_steps_count_and_time_by_stage(metrics: OwnMetrics) -> None:
    metrics.stage("observe", 0.2)
    metrics.stage("decide", 0.01)
    metrics.stepped(NIGHT, 0.3)
    metrics.step_failed()
    metrics.late(2)
    assert value(metrics, "fleetwarden_steps_total", result="ok") == 1
    assert value(metrics, "fleetwarden_steps_total", result="failed") == 1
    assert value(metrics, "fleetwarden_step_seconds_sum", stage="observe") == pytest.approx(0.2)
    assert value(metrics, "fleetwarden_step_seconds_count", stage="all") == 1
    assert value(metrics, "fleetwarden_last_step_timestamp_seconds") == NIGHT
    assert value(metrics, "fleetwarden_late_ticks_total") == 2


def test_sources_show_whether_and_how_long_ago_they_answered(metrics: OwnMetrics) -> None:
    metrics.sources([SourceStatus(SCRAPE, NIGHT - 3), SourceStatus(PROMETHEUS, None, "connection refused")], NIGHT)
    assert value(metrics, "fleetwarden_source_up", source="scrape") == 1
    assert value(metrics, "fleetwarden_source_age_seconds", source="scrape") == 3
    assert value(metrics, "fleetwarden_source_up", source="prometheus") == 0
    assert value(metrics, "fleetwarden_source_age_seconds", source="prometheus") == float("inf")


def test_findings_and_incidents_show_what_is_and_no_longer_what_was(metrics: OwnMetrics) -> None:
    metrics.findings(HUNG.explains)
    metrics.incidents([fold(Life("a", HUNG).events), fold(approval_request().events), fold(repaired_hang().events)])
    assert value(metrics, "fleetwarden_findings", symptom="steps.frozen") == 1
    assert value(metrics, "fleetwarden_incidents_open", cause="engine.hung", state="open") == 1
    assert value(metrics, "fleetwarden_incidents_open", cause="engine.hung", state="resolved") is None
    metrics.findings([])
    metrics.incidents([fold(escalated_hang().events)])
    assert value(metrics, "fleetwarden_findings", symptom="steps.frozen") is None
    assert not [key for key in samples(metrics) if key[0] == "fleetwarden_incidents_open"]


def test_who_waits_for_people_is_a_figure_from_the_start(metrics: OwnMetrics) -> None:
    assert value(metrics, "fleetwarden_waiting_for_people", **{"with": "escalation"}) == 0
    metrics.waiting(approvals=1, escalations=2)
    assert value(metrics, "fleetwarden_waiting_for_people", **{"with": "approval"}) == 1
    assert value(metrics, "fleetwarden_waiting_for_people", **{"with": "escalation"}) == 2


def test_decisions_operations_and_notices_count_by_what_they_came_to(metrics: OwnMetrics) -> None:
    decision = Decision(Verdict.WAIT, Reason.BREAKER_OPEN, "the breaker is open")
    for each in (decision, replace(decision, says="still")):
        metrics.decided(each)
    metrics.operated("process.restart", OutcomeStatus.UNKNOWN)
    metrics.notified("slack", "delivered")
    metrics.detector_failed("latency")
    assert value(metrics, "fleetwarden_decisions_total", verdict="wait", reason="breaker_open") == 2
    assert value(metrics, "fleetwarden_operations_total", verb="process.restart", outcome="unknown") == 1
    assert value(metrics, "fleetwarden_notices_total", sink="slack", result="delivered") == 1
    assert value(metrics, "fleetwarden_detector_failures_total", detector="latency") == 1


def test_the_breaker_is_in_exactly_one_state(metrics: OwnMetrics) -> None:
    for state in ("open", "half_open", "closed"):
        metrics.breaker(state)
        states = {key[1][0][1]: number for key, number in samples(metrics).items() if key[0] == "fleetwarden_breaker_state"}
        assert states == {"closed": 0.0, "open": 0.0, "half_open": 0.0} | {state: 1.0}


def test_pause_and_build_are_shown(metrics: OwnMetrics) -> None:
    metrics.paused(paused=True)
    assert value(metrics, "fleetwarden_paused") == 1
    assert any(key[0] == "fleetwarden_build_info" and ("version", "0.1.0") in key[1] for key in samples(metrics))


def test_two_wardens_in_one_process_do_not_share_metrics(metrics: OwnMetrics) -> None:
    OwnMetrics("0.1.0").late()
    assert value(metrics, "fleetwarden_late_ticks_total") == 0
