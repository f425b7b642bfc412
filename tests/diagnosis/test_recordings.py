"""The detectors and the diagnosis on recordings of real vLLM under real faults. Run with -s to see the tables."""

import pytest
from judging import RECORDINGS, Judgement, judge, table


@pytest.fixture(scope="module", params=["vllm-0.32-a", "vllm-0.32-b", "vllm-0.32-c"])
def judgement(request: pytest.FixtureRequest) -> Judgement:
    judged = judge(RECORDINGS / request.param)
    print("\n" + table(judged))  # noqa: T201 - the table is what a person runs this for
    return judged


def test_every_fault_is_found_by_its_right_name_and_soon_enough(judgement: Judgement) -> None:
    assert judgement.verdicts
    wrong = [verdict.fault.kind for verdict in judgement.verdicts if not verdict.right]
    assert wrong == [], table(judgement)


def test_nothing_opens_where_nothing_is_wrong(judgement: Judgement) -> None:
    assert judgement.false == (), table(judgement)


def test_no_detector_fails_on_real_telemetry(judgement: Judgement) -> None:
    assert judgement.failures == ()


def test_other_ticks_and_a_shorter_memory_judge_alike() -> None:
    judged = judge(RECORDINGS / "vllm-0.32-b", horizon=240.0, interval=3.0)
    assert all(verdict.right for verdict in judged.verdicts), table(judged)
    assert judged.false == (), table(judged)
