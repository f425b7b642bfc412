"""Parts of the kubelet, and the finding of programs, that need no control plane."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from control_plane import programs
from control_plane.kubelet.backoff import Backoff
from control_plane.kubelet.environment import environment, expand
from control_plane.kubelet.images import ImagePullError, Images, StartError
from control_plane.kubelet.status import conditions, phase
from control_plane.waiting import until

from serving.engines.processes import is_alive, mark

RUNNING = {"name": "one", "state": {"running": {}}, "lastState": {}, "ready": True}
NEW = {"name": "one", "state": {"waiting": {"reason": "ContainerCreating"}}, "lastState": {}, "ready": False}
HELD_BACK = {
    "name": "one",
    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
    "lastState": {"terminated": {"exitCode": 1}},
}


def ended(code: int) -> dict[str, object]:
    return {"name": "one", "state": {"terminated": {"exitCode": code}}, "lastState": {}, "ready": False}


@pytest.mark.parametrize(
    ("containers", "policy", "expected"),
    [
        ([NEW], "Always", "Pending"),
        ([RUNNING, NEW], "Always", "Pending"),
        ([RUNNING], "Always", "Running"),
        ([HELD_BACK], "Always", "Running"),
        ([ended(1)], "Always", "Running"),
        ([ended(0)], "OnFailure", "Succeeded"),
        ([ended(1)], "OnFailure", "Running"),
        ([ended(0), ended(1)], "Never", "Failed"),
        ([ended(0), RUNNING], "Never", "Running"),
    ],
)
def test_the_phase_follows_from_the_containers(containers: list[dict[str, object]], policy: str, expected: str) -> None:
    assert phase(containers, policy, over=False) == expected


@pytest.mark.parametrize(
    ("containers", "expected"), [([ended(0)], "Succeeded"), ([ended(143)], "Failed"), ([HELD_BACK], "Failed")]
)
def test_a_pod_that_was_stopped_for_good_has_a_last_phase(containers: list[dict[str, object]], expected: str) -> None:
    assert phase(containers, "Always", over=True) == expected


def test_a_closed_readiness_gate_keeps_a_pod_from_being_ready() -> None:
    pod = {"spec": {"readinessGates": [{"conditionType": "example.com/in-rotation"}]}, "status": {}}
    made = {one["type"]: one["status"] for one in conditions(pod, [RUNNING], [], "Running", 0, has_address=True)}
    assert (made["ContainersReady"], made["Ready"]) == ("True", "False")


def test_a_condition_keeps_its_time_until_it_changes() -> None:
    pod = {"spec": {}}
    first = conditions(pod, [RUNNING], [], "Running", 10, has_address=True)
    second = conditions(pod, [{**RUNNING, "ready": False}], first, "Running", 20, has_address=True)
    times = {one["type"]: one["lastTransitionTime"][-3:] for one in second}
    assert (times["Initialized"], times["Ready"]) == ("10Z", "20Z")


def test_delays_double_up_to_the_most_and_are_forgotten_after_ten_quiet_minutes() -> None:
    backoff, now, seen = Backoff(10, 60), 0.0, []
    for _ in range(6):
        delay = backoff.delay(now, now)
        seen.append(delay)
        backoff.restarted(now, now + delay)
        now += delay + 1
    assert seen == [0, 10, 20, 40, 60, 60]
    assert backoff.delay(now + 700, now + 700) == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [("$(A)-$(B)", "1-$(B)"), ("$$(A)", "$(A)"), ("$A $(", "$A $("), ("", "")],
)
def test_references_to_variables_are_replaced_as_kubernetes_does(text: str, expected: str) -> None:
    assert expand(text, {"A": "1"}) == expected


def test_variables_may_come_from_the_pod() -> None:
    pod = {"metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"team": "red"}}, "spec": {}}
    fields = {"IP": "status.podIP", "NODE": "spec.nodeName", "TEAM": "metadata.labels['team']"}
    env = [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()]
    env.append({"name": "URL", "value": "http://$(IP):80"})
    made = environment({"env": env}, pod, "node-a", "127.3.4.5", "127.3.4.1")
    assert made == {"IP": "127.3.4.5", "NODE": "node-a", "TEAM": "red", "URL": "http://127.3.4.5:80"}


def test_a_variable_from_a_secret_is_refused_by_name(tmp_path: Path) -> None:
    env = [{"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
    with pytest.raises(ValueError, match="secretKeyRef"):
        environment({"env": env}, {"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {}}, "", "", "")
    assert not list(tmp_path.iterdir())


@pytest.fixture
def images(tmp_path: Path) -> Images:
    return Images(tmp_path)


def test_vllms_options_reach_the_simulated_engine_as_far_as_it_has_them(images: Images) -> None:
    arguments = ["Qwen/Qwen3-8B", "--tensor-parallel-size", "8", "--max-num-seqs", "4", "--enforce-eager", "--port=9000"]
    launch = images.launch(
        "vllm/vllm-openai:v0.32.0", ["vllm", "serve"], [*arguments, "--no-enable-prefix-caching"], "p", "127.3.4.5"
    )
    assert launch.command[:3] == (sys.executable, "-m", "serving.simulator")
    options = " ".join(launch.command[3:])
    assert options == (
        "--name p --port 9000 --model Qwen/Qwen3-8B --host 127.3.4.5 --max-num-seqs=4 --no-enable-prefix-caching"
    )


def test_the_served_name_goes_before_the_models_path(images: Images) -> None:
    launch = images.launch("vllm/vllm-openai:v1", [], ["--model=/models/x", "--served-model-name", "x"], "p", "127.3.4.5")
    assert launch.command[launch.command.index("--model") + 1] == "x"


@pytest.mark.parametrize("image", ["vllm/vllm-openaii:v1", "localhost/process:", "busybox"])
def test_an_image_that_is_not_there_cannot_be_pulled(images: Images, image: str) -> None:
    with pytest.raises(ImagePullError, match=image):
        images.launch(image, [], [], "p", "127.3.4.5")


def test_an_unknown_command_in_vllms_image_cannot_be_started(images: Images) -> None:
    with pytest.raises(StartError, match="bash"):
        images.launch("vllm/vllm-openai:v1", ["bash", "-c", "vllm serve x"], [], "p", "127.3.4.5")


def test_programs_that_are_missing_are_named_with_what_brings_them(tmp_path: Path) -> None:
    (tmp_path / "etcd").touch(mode=0o755)
    (tmp_path / "kube-apiserver").touch(mode=0o755)
    with pytest.raises(programs.MissingProgramsError) as missing:
        programs.find({"KUBEBUILDER_ASSETS": str(tmp_path), "PATH": ""})
    assert "kube-scheduler (not in" in str(missing.value)
    assert "kube-apiserver (not" not in str(missing.value)
    assert "make control-plane" in str(missing.value)


def test_the_cache_lies_outside_the_checkout_and_names_the_version(tmp_path: Path) -> None:
    assert (
        programs.cache_directory({"XDG_CACHE_HOME": str(tmp_path)})
        == tmp_path / "fleetwarden" / f"kubernetes-{programs.version()}"
    )
    assert programs.cache_directory({"XDG_CACHE_HOME": "relative"}).is_relative_to(Path.home() / ".cache")


def test_a_build_that_fails_leaves_nothing_that_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    # Writes half a program to the place named after -o, then complains.
    go.write_text(
        '#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\necho half > "$2"; chmod +x "$2"\necho no room left >&2; exit 1\n'
    )
    go.chmod(go.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{go.parent}:/usr/bin:/bin")
    with pytest.raises(programs.MissingProgramsError, match="no room left"):
        programs.build(tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [".building"]


def test_a_build_brings_every_program_and_does_nothing_the_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(
        f'#!/bin/sh\necho x >> {tmp_path}/calls\nwhile [ "$1" != -o ]; do shift; done\ntouch "$2"; chmod +x "$2"\n'
    )
    go.chmod(go.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "etcd").touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{go.parent}:/usr/bin:/bin")
    for _ in range(2):
        programs.build(tmp_path / "cache")
    assert programs.find({"KUBEBUILDER_ASSETS": str(tmp_path / "cache")}).kubectl is not None
    assert len((tmp_path / "calls").read_text().split()) == len(programs.BUILT)


def test_nothing_outlives_a_starter_that_is_killed() -> None:
    script = (
        "import subprocess, sys, time\n"
        "from control_plane.orphan_guard import OrphanGuard\n"
        "with OrphanGuard() as guard:\n"
        "    child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "    guard.watch(child.pid)\n"
        "    print(child.pid, flush=True)\n"
        "    time.sleep(600)\n"
    )
    folders = [str(Path(programs.__file__).parents[1]), str(Path(programs.__file__).parents[2])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment) as starter:
        assert starter.stdout is not None
        child = mark(int(starter.stdout.readline()))
        starter.kill()
    assert child is not None
    until(lambda: not is_alive(child), 20, "the child is killed")
