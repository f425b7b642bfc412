"""What the tests of the detectors share."""

from collections.abc import Callable

import pytest

from detectors.catalogue import detect_all
from detectors.finding import Finding, Symptom
from detectors.parameters import Parameters, load_parameters
from serving.telemetry.window import Window

Seen = dict[str, set[Symptom]]


@pytest.fixture(scope="session")
def parameters() -> Parameters:
    return load_parameters()


@pytest.fixture
def findings(parameters: Parameters) -> Callable[[Window], tuple[Finding, ...]]:
    """All findings of a window; no detector may fail."""

    def run(window: Window) -> tuple[Finding, ...]:
        detection = detect_all(window, parameters)
        assert detection.failed == ()
        return detection.findings

    return run


@pytest.fixture
def seen(findings: Callable[[Window], tuple[Finding, ...]]) -> Callable[[Window], Seen]:
    """The symptoms found in a window, by the name of the entity."""

    def run(window: Window) -> Seen:
        by_name: Seen = {}
        for finding in findings(window):
            by_name.setdefault(finding.entity.name, set()).add(finding.symptom)
        return by_name

    return run
