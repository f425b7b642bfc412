"""What the door reads off a request before it chooses an engine: whether the path is for users, the model, and the mode."""

from dataclasses import dataclass

import orjson

from serving.gateway import errors
from serving.gateway.errors import ErrorReply

# vLLM's routes for users. Its management and development routes (LoRA loading, sleep, pause, collective_rpc) stay inside.
_ROUTES = frozenset(
    {"/tokenize", "/detokenize", "/pooling", "/classify", "/score", "/rerank", "/v2/rerank", "/invocations", "/version"}
)
_NOT_FOR_USERS = ("/v1/load_lora_adapter", "/v1/unload_lora_adapter")


@dataclass(frozen=True, slots=True)
class Asked:
    """What the door reads off a request. What tenants and lanes need would be read here too."""

    model: str | None
    streamed: bool


def passes(path: str) -> bool:
    """Whether the door passes this path on to engines."""
    if ".." in path:
        return False
    return path in _ROUTES or (path.startswith("/v1/") and not path.startswith(_NOT_FOR_USERS))


def read_asked(body: bytes, content_type: str, models: tuple[str, ...]) -> Asked | ErrorReply:
    """Read model and mode off a request's body, or say why it cannot be routed.

    With one model in the fleet every request goes to its engines, whatever name it gives: they know their aliases.
    """
    fields = _fields(body, content_type)
    if isinstance(fields, ErrorReply):
        return fields
    model, streamed = fields.get("model"), fields.get("stream") is True
    if len(models) == 1:
        return Asked(models[0], streamed)
    if model is None and body:
        return errors.bad_request(f"the request names no model, and this door serves {', '.join(models)}")
    if model is not None and model not in models:
        return errors.unknown_model(str(model), ", ".join(models) or "no model")
    return Asked(model, streamed)


def _fields(body: bytes, content_type: str) -> dict[str, object] | ErrorReply:
    if not body or "json" not in content_type:
        return {}
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        return errors.bad_request(f"the request body is not JSON: {error}")
    return fields if isinstance(fields, dict) else errors.bad_request("the request body must be a JSON object")
