"""Two whole wardens over one cell and one PostgreSQL: one acts, the other watches, writes nothing and takes over."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, closing
from pathlib import Path

import httpx
import pytest
from control_plane.waiting import until
from pydantic import SecretStr
from pytest_httpserver import HTTPServer

from agent.election.settings import ElectionKind, ElectionSettings
from agent.journal.stored import open_journal
from agent.settings import HttpSettings, JournalSettings, LoopSettings, WardenSettings
from agent.wiring import Warden, warden
from serving.clock import SystemClock
from serving.fleet.fleet_file import EngineEntry, FleetFile, GatewayEntry, ScrapeEntry, TelemetryEntry
from serving.yaml_file import FileError

SECONDS = 60.0


@pytest.fixture
def settings(tmp_path: Path, httpserver: HTTPServer) -> Callable[..., WardenSettings]:
    """Settings of a warden over a fleet of one engine, which says nothing of use."""
    httpserver.expect_request("/metrics").respond_with_data("# nothing\n")
    fleet = FleetFile(
        fleet="west",
        engines=[EngineEntry(name="one", url=httpserver.url_for("/"), model="m")],
        gateway=GatewayEntry(name="door", url="http://127.0.0.1:9", admin_url="http://127.0.0.1:10"),
        telemetry=TelemetryEntry(scrape=ScrapeEntry(timeout=0.5)),
    )
    fleet.dump(tmp_path / "fleet.yaml")

    def make(url: str, name: str, kind: ElectionKind = ElectionKind.POSTGRES) -> WardenSettings:
        return WardenSettings(
            state_dir=tmp_path / name,
            fleet=tmp_path / "fleet.yaml",
            loop=LoopSettings(interval=2.0, observe_deadline=1.0),
            http=HttpSettings(port=0),
            journal=JournalSettings(url=SecretStr(url)),
            election=ElectionSettings(kind=kind),
        )

    return make


def ready(one: Warden) -> dict[str, object]:
    return dict(httpx.get(f"http://127.0.0.1:{one.port}/readyz", trust_env=False).json())


@pytest.mark.real_postgres
def test_one_acts_the_other_follows_and_takes_over_when_the_first_leaves(
    settings: Callable[..., WardenSettings], postgres_url: str
) -> None:
    with ExitStack() as end:
        journal = end.enter_context(closing(open_journal(postgres_url)))
        leaving = end.enter_context(ExitStack())
        first = leaving.enter_context(warden(settings(postgres_url, "first"), SystemClock()))
        until(lambda: first.runner.tick() is not None, SECONDS, "the first acts", poll_s=0.2)
        second = end.enter_context(warden(settings(postgres_url, "second"), SystemClock()))
        before = journal.events()
        for _ in range(3):
            assert second.runner.tick() is None
        assert journal.events() == before
        until(lambda: ready(second)["leader"], SECONDS, "the second knows who leads")
        assert (ready(first)["role"], ready(first)["term"]) == ("leader", 1)
        assert (ready(second)["role"], ready(second)["leader"]) == ("follower", ready(first)["leader"])
        assert ready(second)["ready"] is True
        metrics = httpx.get(f"http://127.0.0.1:{second.port}/metrics", trust_env=False).text
        assert "fleetwarden_leader 0.0" in metrics
        assert 'fleetwarden_source_up{source="scrape"} 1.0' in metrics, "its windows are warm"
        leaving.close()
        until(lambda: second.runner.tick() is not None, SECONDS, "the second acts", poll_s=0.2)
        assert (ready(second)["role"], ready(second)["term"]) == ("leader", 2)
        assert [entry.term for entry in journal.events()] == [1, 2]


def _opening(made: WardenSettings) -> AbstractContextManager[Warden]:
    return warden(made, SystemClock())


def test_several_wardens_need_a_journal_that_they_share(settings: Callable[..., WardenSettings], tmp_path: Path) -> None:
    made = settings(f"sqlite:///{tmp_path / 'journal.sqlite'}", "first")
    with pytest.raises(FileError, match=r"election\.kind: is for several wardens, .* `journal.url_file`"), _opening(made):
        pass


@pytest.mark.real_postgres
def test_a_lease_outside_a_pod_needs_a_namespace_and_rights_that_are_named(
    settings: Callable[..., WardenSettings], postgres_url: str, tmp_path: Path
) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(
        "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], "
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}], users: [{name: u, user: {token: t}}]}"
    )
    made = settings(postgres_url, "first", ElectionKind.LEASE)
    election = made.election.model_copy(update={"kubeconfig": config})
    with (
        pytest.raises(FileError, match=r"election\.namespace: is needed outside a pod"),
        _opening(made.model_copy(update={"election": election})),
    ):
        pass


def test_a_second_warden_without_an_election_ends_the_first_ones_writing(
    settings: Callable[..., WardenSettings], tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'journal.sqlite'}"
    with _opening(settings(url, "first", ElectionKind.NONE)) as first:
        assert first.runner.tick() is not None
        with _opening(settings(url, "second", ElectionKind.NONE)) as second:
            assert second.runner.tick() is not None
            with closing(open_journal(url)) as journal:
                before = journal.events()
                first.runner.housekeep()
                first.runner.tick()
                assert journal.events() == before
