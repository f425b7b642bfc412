"""What a pod's command line tells of the engine in it."""

from typing import Any

import pytest

from serving.kubernetes.launch import Launch


@pytest.mark.parametrize(
    ("container", "model"),
    [
        ({"args": ["--model", "org/llama"]}, "org/llama"),
        ({"args": ["--model=org/llama", "--served-model-name", "llama", "alias"]}, "llama"),
        ({"command": ["vllm", "serve", "org/llama"], "args": ["--port", "9000"]}, "org/llama"),
        ({"command": ["sh", "-c"], "args": ["exec vllm serve org/llama \\\n  --served-model-name=llama"]}, "llama"),
        ({"command": ["python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "m"]}, "m"),
        ({"args": ["--model=$(NAME)"], "env": [{"name": "NAME", "value": "llama"}]}, "llama"),
        ({"command": ["sh", "-c", "vllm serve ${NAME}"], "env": [{"name": "NAME", "value": "llama"}]}, "llama"),
        ({"args": ["--model=$(SECRET)"], "env": [{"name": "SECRET", "valueFrom": {}}]}, "$(SECRET)"),
        ({"args": ["--port", "8080"]}, ""),
        ({"command": ["sh", "-c", "echo 'open"]}, ""),
        ({}, ""),
    ],
)
def test_the_model_is_called_as_it_is_served(container: dict[str, Any], model: str) -> None:
    assert Launch.of(container, None).model == model


PORTS = {"ports": [{"name": "metrics", "containerPort": 9090}, {"name": "http", "containerPort": 8080}]}


@pytest.mark.parametrize(
    ("container", "settled", "port"),
    [
        ({"args": ["--model=m"]}, None, 8000),
        ({"args": ["--model=m", "--port=9000"], **PORTS}, None, 9000),
        ({"args": ["--model=m"], **PORTS}, None, 8080),
        ({"args": ["--model=m"], "ports": [{"containerPort": 7000}]}, None, 7000),
        ({"args": ["--model=m", "--port=9000"], **PORTS}, "metrics", 9090),
        ({"args": ["--model=m"], **PORTS}, "absent", 8000),
        ({"args": ["--model=m"], **PORTS}, 7777, 7777),
        ({"args": ["--port", "nonsense", "--model=m"]}, None, 8000),
    ],
)
def test_the_port_is_the_settled_one_or_the_one_that_vllm_listens_on(
    container: dict[str, Any], settled: str | int | None, port: int
) -> None:
    assert Launch.of(container, settled).port == port


def test_parallel_sizes_are_read_in_both_spellings() -> None:
    told = Launch.of({"args": ["--model=m", "--tensor_parallel_size=8", "-pp", "2"]}, None)
    assert (told.tp, told.pp) == (8, 2)
