"""Settings: file and environment together, every mistake said, no secret ever shown."""

import logging
import os
import traceback
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.decision.policy import Minimum
from agent.election.timing import Timing
from agent.settings import WardenSettings
from agent.settings_file import load_settings
from serving.fleet.fleet_file import EngineEntry, FleetFile, ModelEntry
from serving.secret_file import read_secret
from serving.yaml_file import FileError

EXAMPLE = Path(__file__).parents[2] / "deploy" / "examples" / "warden.yaml"


@pytest.fixture(autouse=True)
def _empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("FLEETWARDEN_"):
            monkeypatch.delenv(name)


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "warden.yaml"
    path.write_text(text)
    return path


def problems(path: Path | None) -> list[str]:
    with pytest.raises(FileError) as refused:
        load_settings(path)
    return [str(problem) for problem in refused.value.problems]


def test_without_file_and_environment_the_defaults_are_careful() -> None:
    found = load_settings()
    assert (found.loop.interval, found.loop.history, found.dry_run) == (2.0, 600.0, False)
    assert found.policy.autonomy == "recommend"
    assert found.http.host == "127.0.0.1"
    assert found.fleet_file == found.state_dir / "fleet.yaml"
    assert found.journal_url().get_secret_value().endswith("/journal.sqlite")


def test_the_example_loads_and_describes_itself() -> None:
    found = load_settings(EXAMPLE)
    assert found.dry_run
    assert found.fleet_file == EXAMPLE.parent.absolute() / "fleet.yaml"
    text = found.describe()
    assert "https://desk.example.net/**********" in text
    assert "hooks/fleetwarden" not in text


def test_the_example_grants_only_runbooks_that_exist() -> None:
    library = Path(__file__).parents[2] / "runbooks" / "library"
    known = {path.stem for path in library.glob("*.yaml")} | {"*"}
    assert {grant.runbook for grant in load_settings(EXAMPLE).policy.grants} <= known


def test_the_environment_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "loop: {interval: 3, history: 900}\ndry_run: true\n")
    monkeypatch.setenv("FLEETWARDEN_LOOP__INTERVAL", "7")
    monkeypatch.setenv("FLEETWARDEN_DRY_RUN", "false")
    found = load_settings(path)
    assert (found.loop.interval, found.loop.history, found.dry_run) == (7.0, 900.0, False)


def test_all_mistakes_of_a_file_are_named_with_line_and_field(tmp_path: Path) -> None:
    path = written(
        tmp_path, "dry_rum: true\nloop:\n  interval: fast\n  history: 5\nhttp: {port: 70000}\npolicy: {autonomy: full}\n"
    )
    found = problems(path)
    assert [line.removeprefix(f"{path}:").partition(": ")[0] for line in found] == [
        "1: dry_rum".partition(": ")[0],
        "3",
        "4",
        "5",
        "6",
    ]
    assert "dry_rum: is not a known key; did you mean dry_run?" in found[0]
    assert "loop.interval" in found[1]
    assert "loop.history" in found[2]
    assert "http.port" in found[3]
    assert "policy.autonomy" in found[4]


def test_a_mistake_in_the_environment_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETWARDEN_LOOP__INTERVAL", "fast")
    monkeypatch.setenv("FLEETWARDEN_HTTP__PRT", "1")
    found = problems(None)
    assert any("FLEETWARDEN_LOOP__INTERVAL" in line for line in found)
    assert any("FLEETWARDEN_HTTP__PRT" in line for line in found)


def test_a_section_in_the_environment_that_is_no_json_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETWARDEN_POLICY", "{autonomy")
    (found,) = problems(None)
    assert "policy" in found


@pytest.mark.parametrize("slip", ["FLEETWARDEN_DRYRUN", "FLEETWARDEN_DRY_RUM", "FLEETWARDEN_SINK__LOG"])
def test_a_slip_in_a_variable_is_not_passed_over(slip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(slip, "true")
    (found,) = problems(None)
    assert slip in found
    assert "did you mean" in found


def test_variables_that_mark_engine_processes_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FLEETWARDEN_ENGINE", "FLEETWARDEN_STATE", "FLEETWARDEN_OPERATION", "FLEETWARDEN_GC_STALL_FILE"):
        monkeypatch.setenv(name, "x")
    assert isinstance(load_settings(), WardenSettings)


def test_relative_paths_are_taken_from_the_files_directory(tmp_path: Path) -> None:
    path = written(
        tmp_path, "fleet: f.yaml\nrunbooks: [a, /b]\nsinks: {slack: {webhook_url_file: s}}\njournal: {path: j.sqlite}\n"
    )
    found = load_settings(path)
    assert found.fleet == tmp_path / "f.yaml"
    assert found.runbooks == [tmp_path / "a", Path("/b")]
    assert found.sinks.slack is not None
    assert found.sinks.slack.webhook_url_file == tmp_path / "s"
    assert found.journal_url().get_secret_value() == f"sqlite:///{tmp_path}/j.sqlite"


def test_the_slack_url_may_come_from_the_environment_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "sinks: {slack: {patience: 30}}\n")
    (found,) = problems(path)
    assert "names no webhook" in found
    monkeypatch.setenv("FLEETWARDEN_SINKS__SLACK__WEBHOOK_URL", "https://hooks.slack.com/services/T/B/x")
    slack = load_settings(path).sinks.slack
    assert slack is not None
    assert (slack.patience, slack.url().get_secret_value()) == (30.0, "https://hooks.slack.com/services/T/B/x")


def test_a_reading_deadline_beyond_the_interval_is_refused(tmp_path: Path) -> None:
    (found,) = problems(written(tmp_path, "loop: {interval: 1, observe_deadline: 2}\n"))
    assert "longer than the interval" in found


def test_durations_of_an_election_that_do_not_fit_are_refused_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "warden.yaml"
    path.write_text("election:\n  kind: lease\n  retry: 5\n  lease: 9\n")
    with pytest.raises(FileError) as refused:
        load_settings(path)
    assert "warden.yaml:1: election: renew of 8 s is shorter than 13.5 s" in str(refused.value)
    assert "lease of 9 s leaves a leader that stopped after renew of 8 s less than 1.5 s" in str(refused.value)


def test_an_election_has_durations_that_fit_by_default(tmp_path: Path) -> None:
    path = tmp_path / "warden.yaml"
    path.write_text("election: {kind: postgres, name: west}\n")
    assert load_settings(path).election.timing == Timing()


def test_two_webhooks_of_one_name_are_refused(tmp_path: Path) -> None:
    hook = "{name: a, url: 'http://h/x'}"
    (found,) = problems(written(tmp_path, f"sinks: {{webhooks: [{hook}, {hook}]}}\n"))
    assert "same name" in found


def test_the_fleets_budgets_enter_the_policy_and_the_policys_own_win(tmp_path: Path) -> None:
    engines = [EngineEntry(name=f"e{n}", url=f"http://h:{n + 1}", model="ab"[n % 2]) for n in range(4)]
    models = [ModelEntry(name="a", min_healthy=1), ModelEntry(name="b", min_healthy_fraction=0.9)]
    fleet = FleetFile(fleet="f", cell="west", engines=engines, models=models)
    found = load_settings(written(tmp_path, "policy: {serving: {models: {b: {engines: 2}}}}\n")).policy_for(fleet)
    assert found.cell == "west"
    assert found.serving.models == {"a": Minimum(engines=1), "b": Minimum(engines=2)}


secrets = st.text(st.characters(codec="ascii", categories=["Lu", "Ll", "Nd"]), min_size=12, max_size=40).map(
    "S3cr3t".__add__
)

HIDING_PLACES = [
    "sinks: {{slack: {{webhook_url: 'https://hooks.slack.com/services/{0}'}}}}",
    "sinks: {{slack: {{url: 'https://hooks.slack.com/services/{0}', webhook_url_file: x}}}}",
    "sinks: {{slack: {{webhook_url_file: x, token: {0}}}}}",
    "sinks: {{slack: {0}}}",
    "sinks: {{slack: {{webhook_url_file: x, patience: {0}}}}}",
    "sinks: {{webhooks: [{{name: a, url: '{0}'}}]}}",
    "sinks: {{webhooks: [{{name: a, url: 'https://h/x', signing_secret: {0}}}]}}",
    "sinks: {{webhooks: [{{name: a b, url: 'https://h/{0}'}}]}}",
    "journal: {{url: 'postgresql://warden:{0}@db/warden'}}",
    "journal: {{path: [{0}]}}",
    "slack_webhook: https://hooks.slack.com/services/{0}",
    "slack: https://hooks.slack.com/services/{0}",
    "api_token: {0}",
    "http: {{password: {0}}}",
]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(secret=secrets, place=st.sampled_from(HIDING_PLACES))
def test_no_mistake_in_a_file_repeats_a_secret(secret: str, place: str, tmp_path: Path) -> None:
    path = written(tmp_path, place.format(secret) + "\n")
    with pytest.raises(FileError) as refused:
        load_settings(path)
    assert secret not in str(refused.value)
    assert secret not in repr(refused.value)
    assert secret not in "".join(traceback.format_exception(refused.value))


VARIABLES = [
    ("FLEETWARDEN_SINKS__SLACK__WEBHOOK_URL", "{0}"),  # not a URL
    ("FLEETWARDEN_SINKS__SLACK__URL", "https://hooks.slack.com/{0}"),
    ("FLEETWARDEN_SINKS__WEBHOOKS", '[{{"name": "a", "url": "{0}"}}]'),
    ("FLEETWARDEN_SINKS", '{{"slack": "{0}"'),  # broken JSON
    ("FLEETWARDEN_JOURNAL", '{{"path": "a", "url": "postgresql://u:{0}@h/d"}}'),
]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(secret=secrets, place=st.sampled_from(VARIABLES))
def test_no_mistake_in_the_environment_repeats_a_secret(secret: str, place: tuple[str, str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(place[0], place[1].format(secret))
        with pytest.raises(FileError) as refused:
            load_settings()
    assert secret not in str(refused.value)
    assert secret not in repr(refused.value)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(secret=secrets)
def test_accepted_secrets_show_nowhere(
    secret: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, f"sinks: {{webhooks: [{{name: a, url: 'https://h/{secret}', signing_secret_file: key}}]}}\n")
    (tmp_path / "key").write_text(f"{secret}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLEETWARDEN_SINKS__SLACK__WEBHOOK_URL", f"https://hooks.slack.com/services/{secret}")
        patch.setenv("FLEETWARDEN_JOURNAL__URL", f"postgresql://warden:{secret}@db/warden")
        found = load_settings(path)
    caplog.set_level(logging.DEBUG)
    logging.getLogger("test").info("%s %r", found, found.sinks)
    structlog.get_logger().info("settings", settings=found, sinks=found.sinks, hooks=found.sinks.webhooks)
    for text in (
        repr(found),
        str(found),
        found.describe(),
        found.model_dump_json(),
        caplog.text,
        "".join(capsys.readouterr()),
    ):
        assert secret not in text
    signing = found.sinks.webhooks[0].signing_secret()
    assert signing is not None
    assert signing.get_secret_value() == secret
    assert secret in found.journal_url().get_secret_value()


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (None, "no such file"),
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"S3cr3t\xff", "not UTF-8"),
        (b"S3cr3t\nmore", "one line"),
    ],
)
def test_an_unusable_secret_file_is_named_and_never_repeated(content: bytes | None, what: str, tmp_path: Path) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(FileError, match=what) as refused:
        read_secret(path)
    assert str(path) in str(refused.value)
    assert "S3cr3t" not in str(refused.value)
