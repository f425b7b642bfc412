"""The counter of experts inside vLLM: silent unless asked, right where it counts, harmless where vLLM is another."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from serving.telemetry.experts import loads_of
from serving.telemetry.exposition import ExpositionParser

ROUTER = """
class FusedMoERouter:
    def select_experts(self, hidden_states, router_logits, topk_indices_dtype=None, *, input_ids=None):
        return self._select_experts(hidden_states, router_logits, topk_indices_dtype, input_ids=input_ids)
"""
EPLB = """
class EplbState:
    def rearrange(self, is_profile=False):
        return "rearranged"
"""
# Two layers of four experts; a router that sends every token to the experts its logits name. -1 is padding.
USED = """
import sys, urllib.request
import torch
from serving.engines.vllm_plugin import register
register()
from vllm.model_executor.layers.fused_moe.router.fused_moe_router import FusedMoERouter
from vllm.distributed.eplb.eplb_state import EplbState

class Router(FusedMoERouter):
    global_num_experts, eplb_state = 4, None
    def _select_experts(self, hidden_states, router_logits, topk_indices_dtype=None, *, input_ids=None):
        return router_logits.float(), router_logits

first, second = Router(), Router()
with torch.inference_mode():
    for _ in range(3):
        ids = torch.tensor([[0, 1], [0, 2], [-1, -1]], dtype=torch.int32)
        weights, back = first.select_experts(None, ids)
        assert torch.equal(back, ids)
        second.select_experts(None, torch.tensor([[3, 3]], dtype=torch.int64))
        second.select_experts(None, torch.empty((0, 2), dtype=torch.int64))
assert EplbState().rearrange() == "rearranged"
"""
# Another counter of the same process, whose port is taken by the first.
TAKEN = """
from serving.clock import SystemClock
from serving.engines.expert_counter import ExpertCounter
third = Router()
ExpertCounter(int(sys.argv[1]), SystemClock()).count(third, torch.tensor([[1]]))
assert third._fleetwarden_layer == 0
"""
# What the hook touches of torch before it counts, so that a case costs no import of the real one.
STAND_IN = "class compiler:\n    is_compiling = staticmethod(lambda: False)\n"
ASKED = """
import torch
from serving.engines.vllm_plugin import register
register()
from vllm.model_executor.layers.fused_moe.router.fused_moe_router import FusedMoERouter

class Router(FusedMoERouter):
    def _select_experts(self, hidden_states, router_logits, topk_indices_dtype=None, *, input_ids=None):
        return "weights", router_logits

class Ids:
    is_cuda = False

router = Router()
for _ in range(2):
    assert router.select_experts(None, Ids)[0] == "weights"
print("works", FusedMoERouter.select_experts.__closure__ is not None)
"""
SHOWN = "print(urllib.request.urlopen(f'http://127.0.0.1:{sys.argv[1]}/metrics', timeout=10).read().decode())\n"


def vllm_in(folder: Path, router: str | None = ROUTER, *, torch: str | None = None) -> Path:
    """A package called vllm with the two modules that are watched, as the real one lays them out."""
    modules = {"distributed/eplb/eplb_state.py": EPLB}
    if router is not None:
        modules["model_executor/layers/fused_moe/router/fused_moe_router.py"] = router
    if torch is not None:
        (folder / "torch.py").write_text(torch)
    for place, text in modules.items():
        path = folder / "vllm" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        for parent in path.relative_to(folder).parents:
            if parent != Path():
                (folder / parent / "__init__.py").touch()
    return folder


def run(script: str, folder: Path, port: str | None) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(folder), "PATH": os.environ["PATH"]}
    if port is not None:
        environment["FLEETWARDEN_EXPERTS_PORT"] = port
    command = [sys.executable, "-c", script, port or ""]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=120)


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def test_every_token_is_counted_at_its_experts_and_padding_is_not(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = run(USED + SHOWN + TAKEN, vllm_in(tmp_path), free_port())
    assert done.returncode == 0, done.stderr
    assert "so counts are not shown" in done.stderr  # only by the second counter, whose port was taken
    assert done.stderr.count("\n") == 1
    names = ("fleetwarden:expert_tokens_total", "fleetwarden:expert_balancing", "fleetwarden:expert_rebalance_seconds")
    samples = ExpositionParser(names).parse(done.stdout.strip() + "\n")
    loads = loads_of(samples[names[0]])
    assert [loads[0, expert] for expert in range(4)] == [6, 3, 3, 0]
    assert [loads[1, expert] for expert in range(4)] == [0, 0, 0, 6]
    assert len(loads) == 8
    assert [value for _, value in samples[names[1]]] == [0.0]
    assert [value > 0 for _, value in samples[names[2]]] == [True]


def test_without_the_variable_vllm_is_left_as_it_is(tmp_path: Path) -> None:
    done = run(ASKED, vllm_in(tmp_path, torch=STAND_IN), None)
    assert (done.stdout, done.stderr) == ("works False\n", "")


@pytest.mark.parametrize("router", [None, "class FusedMoERouter: pass\n", "other = 1\n"])
def test_a_vllm_without_that_class_is_told_once_and_works(tmp_path: Path, router: str | None) -> None:
    script = "from serving.engines.vllm_plugin import register\nregister()\n"
    script += "" if router is None else "import vllm.model_executor.layers.fused_moe.router.fused_moe_router\n"
    done = run(script + "print('works')", vllm_in(tmp_path, router), free_port())
    assert done.stdout == "works\n"
    assert done.stderr.count("\n") == 1
    assert "all else is as usual" in done.stderr


def test_what_fails_while_counting_costs_the_counts_and_is_told_once(tmp_path: Path) -> None:
    done = run(ASKED, vllm_in(tmp_path, torch=STAND_IN), free_port())
    assert done.stdout == "works True\n"
    assert done.stderr.count("\n") == 1
    assert "counting ended, the engine goes on" in done.stderr


def test_a_port_that_is_none_is_named(tmp_path: Path) -> None:
    done = run("from serving.engines.vllm_plugin import register\nregister()", vllm_in(tmp_path), "many")
    assert "'many', not a port" in done.stderr
