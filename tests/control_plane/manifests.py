"""Manifests that several tests write alike."""

from typing import Any

PORT = 8000


def vllm_container(*arguments: str, tag: str = "v0.32.0", **more: Any) -> dict[str, Any]:
    """The container of one vLLM engine on one GPU, as a user would write it; the process kubelet simulates the engine."""
    return {
        "name": "vllm",
        "image": f"vllm/vllm-openai:{tag}",
        "args": ["--model=sim", *arguments],
        "ports": [{"name": "http", "containerPort": PORT}],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
        "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 1},
        **more,
    }
