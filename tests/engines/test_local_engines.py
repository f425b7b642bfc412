"""Local engines: starting, finding, stopping and restarting real processes."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from serving.clock import SystemClock
from serving.engines import processes
from serving.engines.engine_process import EngineError, EngineProcess, EngineStatus, KeyState, UnknownEngineError
from serving.engines.ledger import EngineRecord
from serving.engines.local import LocalEngines
from serving.engines.processes import ProcessMark
from serving.engines.records import RecordUnreadableError, read_record, write_record
from serving.engines.specs import EngineKind, EngineSpec

Until = Callable[..., None]
Program = Callable[..., EngineSpec]


def leader(engines: LocalEngines, name: str) -> ProcessMark:
    return engines.processes(name)["api"][0]


def state_file(engines: LocalEngines, name: str) -> Path:
    return engines.folder(name) / "state.json"


def test_an_engine_that_was_only_added_has_never_started(local_engines: LocalEngines, sleeper: str) -> None:
    assert local_engines.names() == (sleeper,)
    assert local_engines.state(sleeper) == EngineProcess(EngineStatus.NEVER_STARTED)
    assert local_engines.processes(sleeper) == {"api": (), "core": (), "worker": ()}


def test_a_started_engine_leads_its_own_session_and_writes_to_its_log(
    local_engines: LocalEngines, program: Program, until: Until
) -> None:
    local_engines.add(program("talker", "import time; print('hello', flush=True); time.sleep(600)"))
    state = local_engines.start("talker")
    assert state.status is EngineStatus.RUNNING
    assert os.getsid(state.pid) == os.getpgid(state.pid) == state.pid
    until(lambda: local_engines.log("talker").read_text() == "hello\n")


def test_starting_a_running_engine_changes_nothing(local_engines: LocalEngines, sleeper: str) -> None:
    first = local_engines.start(sleeper)
    assert local_engines.start(sleeper, "another-key") == first


def test_the_starter_does_not_hand_on_its_own_settings(
    local_engines: LocalEngines, sleeper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETWARDEN_SLACK_WEBHOOK", "secret")
    local_engines.start(sleeper)
    environment = Path(f"/proc/{leader(local_engines, sleeper).pid}/environ").read_bytes()
    assert b"secret" not in environment
    assert b"FLEETWARDEN_ENGINE=sleeper\0" in environment


def test_two_callers_at_once_start_an_engine_once(local_engines: LocalEngines, sleeper: str) -> None:
    found: list[EngineProcess] = []
    threads = [
        threading.Thread(target=lambda: found.append(LocalEngines(local_engines.directory, SystemClock()).start(sleeper)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({state.pid for state in found}) == 1
    assert (
        len(processes.with_environment({"FLEETWARDEN_ENGINE": sleeper, "FLEETWARDEN_STATE": str(local_engines.directory)}))
        == 1
    )


def test_an_engine_outlives_its_starter_and_is_found_by_another(local_engines: LocalEngines, sleeper: str) -> None:
    starter = (
        "import sys\nfrom pathlib import Path\nfrom serving.clock import SystemClock\n"
        "from serving.engines.local import LocalEngines\n"
        "print(LocalEngines(Path(sys.argv[1]), SystemClock()).start(sys.argv[2]).pid)"
    )
    command = [sys.executable, "-c", starter, str(local_engines.directory), sleeper]
    pid = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    state = local_engines.state(sleeper)
    assert (state.status, state.pid) == (EngineStatus.RUNNING, pid)
    assert local_engines.restart(sleeper, grace_s=0).pid != pid


def test_stopping_ends_the_whole_group_even_processes_deaf_to_sigterm(local_engines: LocalEngines, family: str) -> None:
    group = processes.group_members(leader(local_engines, family).pid)
    assert len(group) == 2
    assert local_engines.stop(family, grace_s=0.2).status is EngineStatus.EXITED
    assert not any(processes.is_alive(process) for process in group)


def test_a_stopped_process_still_ends_by_sigterm(local_engines: LocalEngines, program: Program, until: Until) -> None:
    script = "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
    script += "print('up', flush=True)\ntime.sleep(600)"
    local_engines.add(program("polite", script))
    local_engines.start("polite")
    until(lambda: "up" in local_engines.log("polite").read_text())
    process = leader(local_engines, "polite")
    processes.send(process, signal.SIGSTOP)
    until(lambda: processes.is_stopped(process))
    assert local_engines.state("polite").status is EngineStatus.RUNNING
    local_engines.stop("polite", grace_s=20)
    until(lambda: local_engines.state("polite").exit_code == 7)


def test_an_engine_that_dies_is_exited_with_the_signal_that_ended_it(
    local_engines: LocalEngines, sleeper: str, until: Until
) -> None:
    state = local_engines.start(sleeper)
    os.kill(state.pid, signal.SIGKILL)
    until(lambda: local_engines.state(sleeper).exit_code == -signal.SIGKILL)
    assert local_engines.state(sleeper).status is EngineStatus.EXITED


def test_a_restart_gives_a_new_process_and_counts(local_engines: LocalEngines, sleeper: str) -> None:
    first = local_engines.start(sleeper)
    second = local_engines.restart(sleeper, "k1", grace_s=1)
    assert second.pid != first.pid
    assert (second.status, second.restarts, second.operation) == (EngineStatus.RUNNING, 1, "k1")


def test_a_restart_under_a_known_key_does_nothing(local_engines: LocalEngines, sleeper: str) -> None:
    local_engines.restart(sleeper, "k1", grace_s=0)
    second = local_engines.restart(sleeper, "k2", grace_s=0)
    assert local_engines.restart(sleeper, "k1", grace_s=0) == second
    assert [local_engines.key_state(sleeper, key) for key in ("k1", "k2", "k3")] == [
        KeyState.DONE,
        KeyState.DONE,
        KeyState.NEVER,
    ]


def test_children_of_a_dead_leader_are_orphans_until_killed(local_engines: LocalEngines, family: str, until: Until) -> None:
    assert local_engines.orphans(family) == ()
    head = leader(local_engines, family)
    (child,) = processes.group_members(head.pid) - {head}
    processes.send(head, signal.SIGKILL)
    until(lambda: not processes.is_alive(head))
    assert local_engines.orphans(family) == (child,)
    assert local_engines.kill_orphans(family) == (child,)
    assert local_engines.orphans(family) == ()
    assert not processes.is_alive(child)


def test_a_start_clears_orphans_out_of_the_way(local_engines: LocalEngines, family: str, until: Until) -> None:
    head = leader(local_engines, family)
    (child,) = processes.group_members(head.pid) - {head}
    processes.send(head, signal.SIGKILL)
    until(lambda: not processes.is_alive(head))
    local_engines.start(family)
    assert not processes.is_alive(child)


def test_killing_orphans_leaves_a_living_engine_alone(local_engines: LocalEngines, family: str) -> None:
    assert local_engines.kill_orphans(family) == ()
    assert len(processes.group_members(leader(local_engines, family).pid)) == 2


def test_a_reused_process_id_is_not_taken_for_the_engine(local_engines: LocalEngines, sleeper: str) -> None:
    local_engines.start(sleeper)
    local_engines.stop(sleeper, grace_s=0)
    record = read_record(state_file(local_engines, sleeper), EngineRecord)
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        reused = record.process.model_copy(update={"pid": stranger.pid})
        write_record(state_file(local_engines, sleeper), record.model_copy(update={"process": reused}))
        assert local_engines.state(sleeper).status is EngineStatus.EXITED
        assert not processes.send(reused, signal.SIGKILL)
        local_engines.stop(sleeper, grace_s=0)
        assert stranger.poll() is None
        stranger.communicate(b"\n")
        assert stranger.returncode == 0


def test_two_state_directories_with_the_same_engine_name_do_not_touch_each_other(
    local_engines: LocalEngines, sleeper: str, program: Program, tmp_path: Path
) -> None:
    other = LocalEngines(tmp_path / "other", SystemClock())
    other.add(program(sleeper))
    other.start(sleeper)
    try:
        local_engines.start(sleeper)
        local_engines.stop(sleeper, grace_s=0)
        assert other.state(sleeper).status is EngineStatus.RUNNING
    finally:
        other.stop(sleeper, grace_s=0)


def test_an_unknown_engine_is_an_error_that_lists_the_known_ones(local_engines: LocalEngines, sleeper: str) -> None:
    for wrong in ("slepeer", "../sleeper", ""):
        with pytest.raises(UnknownEngineError, match=sleeper):
            local_engines.start(wrong)


def test_a_program_that_ends_at_once_is_an_error_with_the_end_of_its_log(
    local_engines: LocalEngines, program: Program
) -> None:
    local_engines.add(program("broken", "import nothing_of_that_name"))
    with pytest.raises(EngineError, match="nothing_of_that_name"):
        local_engines.restart("broken", "k1")
    assert local_engines.key_state("broken", "k1") is KeyState.FAILED
    assert local_engines.state("broken").status is not EngineStatus.RUNNING


def test_a_program_that_does_not_exist_is_an_error_that_names_it(local_engines: LocalEngines) -> None:
    local_engines.add(EngineSpec(name="gone", kind=EngineKind.PROGRAM, command=("/no/such/program",), port=9, model="none"))
    with pytest.raises(EngineError, match="/no/such/program"):
        local_engines.start("gone")


def test_a_damaged_record_is_an_error_that_names_file_and_field_and_nothing_is_started(
    local_engines: LocalEngines, sleeper: str
) -> None:
    state_file(local_engines, sleeper).write_text('{"restarts": "many"}')
    with pytest.raises(RecordUnreadableError, match=r"state\.json: restarts: .*'many'"):
        local_engines.start(sleeper)
    assert state_file(local_engines, sleeper).read_text() == '{"restarts": "many"}'
    state_file(local_engines, sleeper).unlink()
    assert local_engines.start(sleeper).status is EngineStatus.RUNNING


def test_a_running_engine_is_not_redefined_and_a_stopped_one_is(
    local_engines: LocalEngines, sleeper: str, program: Program
) -> None:
    local_engines.start(sleeper)
    local_engines.add(program(sleeper))  # the same again is no change
    with pytest.raises(EngineError, match="stop it"):
        local_engines.add(program(sleeper, port=10))
    local_engines.stop(sleeper, grace_s=0)
    local_engines.add(program(sleeper, port=10))
    assert local_engines.spec(sleeper).port == 10


def test_a_removed_engine_is_forgotten_unless_it_runs(local_engines: LocalEngines, sleeper: str) -> None:
    local_engines.start(sleeper)
    with pytest.raises(EngineError, match="stop it"):
        local_engines.remove(sleeper)
    local_engines.stop(sleeper, grace_s=0)
    local_engines.remove(sleeper)
    assert local_engines.names() == ()
