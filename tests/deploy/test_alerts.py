"""The shipped alerts, judged by Prometheus' own tool, and held to the metrics that the warden really has."""

import re
import shutil
import subprocess
from pathlib import Path

import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent.own_metrics import OwnMetrics

DEPLOY = Path(__file__).parents[2] / "deploy"
ALERTS = DEPLOY / "prometheus" / "alerts.yaml"
DASHBOARD = DEPLOY / "grafana" / "fleetwarden.json"
PROMTOOL = shutil.which("promtool")
FED_ELSEWHERE = {"fleetwarden_leader"}  # only where replicas elect
_GROWN = ("_total", "_bucket", "_sum", "_count")


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian: apt-get install prometheus)")
@pytest.mark.parametrize("command", [("check", "rules", "alerts.yaml"), ("test", "rules", "alerts.test.yaml")])
def test_promtool_is_content_with_the_alerts(command: tuple[str, ...]) -> None:
    done = subprocess.run([str(PROMTOOL), *command], cwd=ALERTS.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", [ALERTS, DASHBOARD], ids=["alerts", "dashboard"])
def test_every_metric_that_is_asked_for_exists(path: Path) -> None:
    exposed = OwnMetrics("0").exposition().decode()
    known = {family.name for family in text_string_to_metric_families(exposed)} | FED_ELSEWHERE
    asked = set(re.findall(r"\b(fleetwarden_[a-z_]+)", path.read_text()))
    assert asked
    assert {_family(name) for name in asked} <= known


def test_every_alert_is_tried() -> None:
    alerts = set(re.findall(r"alert: (\w+)", ALERTS.read_text()))
    assert set(re.findall(r"alertname: (\w+)", (ALERTS.parent / "alerts.test.yaml").read_text())) == alerts


def test_panels_of_the_dashboard_differ_and_say_what_they_show() -> None:
    panels = orjson.loads(DASHBOARD.read_bytes())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["title"] and (panel["type"] == "row" or panel["description"]) for panel in panels)


def _family(name: str) -> str:
    return next((name.removesuffix(end) for end in _GROWN if name.endswith(end)), name)
