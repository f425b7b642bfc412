"""The life of a pod: scheduled, started, ready, restarted, deleted, by real controllers and a real scheduler."""

import itertools
import os
import signal

import pytest
import requests
from benches import DEAF, SLEEPER, SLOW_TO_END, Bench, engine_spec, pod_spec
from control_plane.kubelet.node import NodeSpec
from control_plane.waiting import until
from kubernetes import client

from serving.clock import SystemClock

pytestmark = pytest.mark.real_kubernetes
CLOCK = SystemClock()


@pytest.fixture(autouse=True)
def nodes(bench: Bench) -> None:
    for name in ("a", "b"):
        bench.kubelet.add_node(NodeSpec(f"{bench.namespace}-{name}", gpus=2, labels={"zone": name}))


def test_a_deployment_of_engines_becomes_ready_and_answers_at_its_pods_addresses(bench: Bench) -> None:
    bench.deploy("llm", 3, engine_spec("--startup-seconds=0.5", "--tensor-parallel-size", "8", "--max-num-seqs=4"))
    pods = bench.until_ready("llm", 3)
    addresses = {pod.status.pod_ip for pod in pods}
    assert len(addresses) == 3
    for address in addresses:
        body = {"model": "sim", "prompt": "hello", "max_tokens": 2}
        answer = requests.post(f"http://{address}:8000/v1/completions", json=body, timeout=10)
        assert answer.json()["usage"]["completion_tokens"] == 2
    assert {pod.spec.node_name for pod in pods} == {f"{bench.namespace}-a", f"{bench.namespace}-b"}


def test_gpus_are_given_to_one_pod_each_and_the_rest_waits(bench: Bench) -> None:
    script = "import os, time\nprint(os.environ['NVIDIA_VISIBLE_DEVICES'], flush=True)\nwhile True: time.sleep(60)"
    gpu = {"limits": {"nvidia.com/gpu": "1"}}
    bench.deploy("gpus", 5, pod_spec(script, resources=gpu))
    pods = bench.until_ready("gpus", 4)
    said = lambda pod: bench.kubelet.worker(bench.namespace, pod.metadata.name).containers[0].log.read_text().strip()  # noqa: E731
    bound = [pod for pod in pods if pod.spec.node_name]
    until(lambda: all(map(said, bound)), 10, "every pod says which GPU it has")
    given = sorted((pod.spec.node_name[-1], said(pod)) for pod in bound)
    assert given == [("a", "0"), ("a", "1"), ("b", "0"), ("b", "1")]
    (waiting,) = [pod for pod in pods if not pod.spec.node_name]
    assert "Insufficient nvidia.com/gpu" in waiting.status.conditions[0].message


def test_a_pod_is_ready_only_while_its_readiness_probe_succeeds(
    bench: Bench, tmp_path_factory: pytest.TempPathFactory
) -> None:
    flag = tmp_path_factory.mktemp("flag") / "ready"
    probe = {"exec": {"command": ["test", "-e", str(flag)]}, "periodSeconds": 1, "failureThreshold": 1}
    bench.start("probed", SLEEPER, readinessProbe=probe)
    until(lambda: bench.state("probed").running, 20, lambda: bench.told("probed"))
    until(lambda: "Unhealthy" in bench.events("probed"), 20, "the failed probe is told")
    flag.touch()
    bench.until_ready("probed")
    flag.unlink()
    bench.until_ready("probed", 0)
    assert bench.state("probed").running


def test_a_hung_engine_is_restarted_by_its_liveness_probe(bench: Bench) -> None:
    liveness = {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 1, "failureThreshold": 2}
    spec = engine_spec("--startup-seconds=0.2", livenessProbe=liveness)
    spec["terminationGracePeriodSeconds"] = 1
    spec["containers"][0]["startupProbe"] = {**liveness, "failureThreshold": 30}
    bench.deploy("hangs", 1, spec)
    (pod,) = bench.until_ready("hangs")
    os.kill(bench.kubelet.pid(bench.namespace, pod.metadata.name), signal.SIGSTOP)
    until(lambda: bench.pods("hangs")[0].status.container_statuses[0].restart_count == 1, 30, lambda: bench.told("hangs"))
    (pod,) = bench.until_ready("hangs")
    ended = pod.status.container_statuses[0].last_state.terminated
    assert (ended.exit_code, ended.reason) == (137, "Error")  # it could not act on SIGTERM


def test_a_crashing_container_is_restarted_with_growing_delays(bench: Bench) -> None:
    bench.start("crashes", "raise SystemExit(3)")

    def delayed(seconds: int) -> bool:
        waiting = bench.state("crashes").waiting
        return waiting is not None and waiting.reason == "CrashLoopBackOff" and f"back-off {seconds}s" in waiting.message

    for seconds in (1, 2, 4):
        until(lambda seconds=seconds: delayed(seconds), 20, lambda: bench.told("crashes"))
    pod = bench.pod("crashes")
    assert pod.status.phase == "Running"  # as the API calls a pod that is to be started again
    assert pod.status.container_statuses[0].last_state.terminated.exit_code == 3
    assert "BackOff" in bench.events("crashes")


@pytest.mark.parametrize(
    ("policy", "script", "phase"),
    [("Never", "", "Succeeded"), ("Never", "raise SystemExit(1)", "Failed"), ("OnFailure", "", "Succeeded")],
)
def test_a_pod_that_need_not_run_again_ends(bench: Bench, policy: str, script: str, phase: str) -> None:
    bench.start("once", script, {"restartPolicy": policy})
    until(lambda: bench.pod("once").status.phase == phase, 20, lambda: bench.told("once"))
    assert bench.pod("once").status.container_statuses[0].restart_count == 0


def test_an_image_that_does_not_exist_is_waited_for(bench: Bench) -> None:
    bench.deploy("badly", 1, engine_spec(image="vllm/vllm-openaii:v1"))
    reasons = []
    for _ in itertools.count():
        pods = bench.pods("badly")
        statuses = pods[0].status.container_statuses if pods else None
        if statuses and statuses[0].state.waiting and statuses[0].state.waiting.reason not in reasons:
            reasons.append(statuses[0].state.waiting.reason)
        if "ImagePullBackOff" in reasons:
            break
    assert pods[0].status.phase == "Pending"


def test_deletion_lets_the_program_end_by_itself(bench: Bench) -> None:
    bench.start("slow", SLOW_TO_END)
    bench.until_ready("slow")
    worker = bench.kubelet.worker(bench.namespace, "slow")
    bench.core.delete_namespaced_pod("slow", bench.namespace)
    assert bench.pod("slow").metadata.deletion_grace_period_seconds == 5
    bench.until_gone("slow")
    assert worker.containers[0].exit_code == 7


def test_a_program_that_is_deaf_to_sigterm_is_killed_when_its_grace_is_over(bench: Bench) -> None:
    bench.start("deaf", DEAF)
    bench.until_ready("deaf")
    worker = bench.kubelet.worker(bench.namespace, "deaf")
    began = CLOCK.monotonic()
    bench.core.delete_namespaced_pod("deaf", bench.namespace, grace_period_seconds=3)
    bench.until_gone("deaf")
    assert CLOCK.monotonic() - began >= 3
    assert worker.containers[0].exit_code == 137


def test_the_pre_stop_hook_runs_before_sigterm_and_its_time_counts(
    bench: Bench, tmp_path_factory: pytest.TempPathFactory
) -> None:
    trace = tmp_path_factory.mktemp("trace") / "trace"
    script = (
        f"import signal, sys, time\nsignal.signal(15, lambda *_: (open({str(trace)!r}, 'a').write('term '), sys.exit(0)))\n"
    )
    hook = {"exec": {"command": ["sh", "-c", f"printf 'hook ' >> {trace}; sleep 1"]}}
    bench.start("hooked", script + "while True: time.sleep(60)", lifecycle={"preStop": hook})
    bench.until_ready("hooked")
    began = CLOCK.monotonic()
    bench.core.delete_namespaced_pod("hooked", bench.namespace)
    bench.until_gone("hooked")
    assert trace.read_text() == "hook term "
    assert CLOCK.monotonic() - began >= 1


def test_a_pod_removed_by_force_is_stopped_too(bench: Bench) -> None:
    bench.start("forced")
    bench.until_ready("forced")
    worker = bench.kubelet.worker(bench.namespace, "forced")
    bench.core.delete_namespaced_pod("forced", bench.namespace, grace_period_seconds=0)
    assert not bench.pods("forced")
    assert worker.over.wait(20)
    assert worker.containers[0].exit_code == 143


def test_pods_live_on_while_the_api_server_is_away(bench: Bench) -> None:
    bench.start("lasting", "import time\ntime.sleep(1)")
    until(lambda: bench.state("lasting").running, 20, lambda: bench.told("lasting"))
    before = bench.kubelet.worker(bench.namespace, "lasting").containers[0].restarts
    bench.plane.api_server.kill()
    until(
        lambda: bench.kubelet.worker(bench.namespace, "lasting").containers[0].restarts > before, 20, "a restart meanwhile"
    )
    bench.plane.restart_api_server()
    told = lambda: bench.pod("lasting").status.container_statuses[0].restart_count  # noqa: E731
    until(lambda: told() > before, 20, lambda: bench.told("lasting"))


def test_a_process_may_talk_to_the_api_server_as_its_service_account(bench: Bench) -> None:
    script = "import os\nprint(open(os.environ['KUBECONFIG']).read(), flush=True)"
    bench.start("talks", script, {"restartPolicy": "Never"})
    until(lambda: bench.pod("talks").status.phase == "Succeeded", 20, lambda: bench.told("talks"))
    config = bench.kubelet.worker(bench.namespace, "talks").containers[0].log.read_text()
    token = config.partition("token: ")[2].split()[0]
    bench.plane.access.tokens["of-pod"] = token
    authentication = client.AuthenticationV1Api(bench.plane.api_client("of-pod"))
    who = authentication.create_self_subject_review({}).status.user_info.username
    assert who == f"system:serviceaccount:{bench.namespace}:default"
