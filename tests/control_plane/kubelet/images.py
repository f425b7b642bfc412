"""What runs in place of an image. An image that is not listed here cannot be pulled, which is what a bad rollout looks like.

vllm/vllm-openai:TAG    a simulated engine (python -m serving.simulator) that listens where vLLM would, with those of vLLM's
                        options that it has; or real vLLM with a tiny model of random weights, if `real_vllm` is asked for
localhost/process:TAG   the container's command as it stands, as a process of this machine
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from serving.engines.specs import require_vllm, simulated_engine, vllm_engine
from serving.engines.tiny_model import make_tiny_model
from serving.simulator.settings import SimulatorSettings

VLLM = "vllm/vllm-openai"
PROCESS = "localhost/process"
VLLM_PORT = 8000
ENTRYPOINTS = (("vllm", "serve"), ("python3", "-m", "vllm.entrypoints.openai.api_server"))
_RENAMED = {"served-model-name": "model", "otlp-traces-endpoint": "otlp-endpoint"}
_OPTIONS = {name.replace("_", "-"): settings.annotation is bool for name, settings in SimulatorSettings.model_fields.items()}
_OWN = ("name", "host", "port", "model")


class ImagePullError(Exception):
    """There is no such image."""


class StartError(Exception):
    """There is, but it cannot be started like this."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How a container's process is started. `environment` is added to the container's own."""

    command: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Images:
    """The images that this machine has. `directory` keeps the tiny model."""

    directory: Path
    real_vllm: bool = False

    def launch(self, image: str, command: Sequence[str], arguments: Sequence[str], pod: str, address: str) -> Launch:
        """Raises ImagePullError or StartError."""
        name, _, tag = image.rpartition(":") if ":" in image.rpartition("/")[2] else (image, "", "latest")
        if not tag or name not in {VLLM, PROCESS}:
            raise ImagePullError(f"{image}: not found")
        if name == PROCESS:
            if not command:
                raise StartError("no command specified")
            return Launch((*command, *arguments))
        if command and tuple(command) not in ENTRYPOINTS:
            raise StartError(
                f"exec: {command[0]!r}: only {' or '.join(' '.join(known) for known in ENTRYPOINTS)} is known here"
            )
        return self._vllm(list(arguments), pod, address)

    def _vllm(self, arguments: list[str], pod: str, address: str) -> Launch:
        options = dict(_pairs(arguments))
        model = options.get("served-model-name") or options.get("model") or options.get("") or "sim"
        port = int(options.get("port") or VLLM_PORT)
        if self.real_vllm:
            require_vllm()
            spec = vllm_engine(
                pod, port, make_tiny_model(self.directory / "tiny-model"), model=model, extra=("--host", address)
            )
        else:
            spec = simulated_engine(pod, port, model=model, extra=("--host", address, *_understood(options)))
        return Launch(spec.command, spec.environment)


def _pairs(arguments: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Options without their dashes and what follows them, None for nothing; the model's name alone under ''."""
    position = 0
    while position < len(arguments):
        word = arguments[position]
        following = arguments[position + 1] if position + 1 < len(arguments) else "--"
        position += 1
        if not word.startswith("--"):
            yield "", word
        elif "=" in word:
            name, _, value = word.removeprefix("--").partition("=")
            yield name, value
        elif following.startswith("--") or _OPTIONS.get(word.removeprefix("--").removeprefix("no-")):
            yield word.removeprefix("--"), None
        else:
            yield word.removeprefix("--"), following
            position += 1


def _understood(options: dict[str, str | None]) -> Iterator[str]:
    """The options that a simulated engine has too. Others, such as those of tensor parallelism, are left out."""
    for option, value in options.items():
        name = _RENAMED.get(option, option)
        if name.removeprefix("no-") in _OPTIONS and name not in _OWN:
            yield f"--{name}" if value is None else f"--{name}={value}"


def search_path() -> str:
    """PATH for processes: this interpreter goes before all others."""
    return f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
