"""Bodies of the OpenAI routes: what is read of a request, and errors and answers in vLLM's shapes."""

from collections.abc import Mapping
from typing import Any, TypeVar

import orjson
from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

Body = TypeVar("Body", bound=BaseModel)


class ApiError(Exception):
    """A request is refused with vLLM's error body."""

    def __init__(self, message: str, *, status: int = 400, kind: str = "BadRequestError", param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = error_body(message, status=status, kind=kind, param=param)

    def response(self) -> web.Response:
        """The refusal as an HTTP response."""
        return json_response(self.body, status=self.status)


def error_body(message: str, *, status: int, kind: str, param: str | None = None) -> dict[str, object]:
    """An error as vLLM words it."""
    return {"error": {"message": message, "type": kind, "param": param, "code": status}}


def json_response(body: object, *, status: int = 200) -> web.Response:
    """A JSON response."""
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")


class StreamOptions(BaseModel):
    """What a stream carries besides text."""

    include_usage: bool = False
    continuous_usage_stats: bool = False


class GenerationBody(BaseModel):
    """What both generating routes understand; other fields are taken and ignored, as vLLM does with unknown ones."""

    model_config = ConfigDict(extra="allow")

    model: str | None = None
    max_tokens: int | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    priority: int = 0
    request_id: str | None = None
    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None

    @property
    def stops(self) -> list[str]:
        """Strings that end the text."""
        given = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return [each for each in given if each]

    @property
    def constrained(self) -> bool:
        """Whether a grammar must be compiled before the request can be scheduled."""
        kind = (self.response_format or {}).get("type", "text")
        return kind != "text" or self.structured_outputs is not None


class CompletionBody(GenerationBody):
    """The body of /v1/completions. The answer has one choice for each prompt, whatever `n` says."""

    prompt: list[int] | list[list[int]] | str | list[str]
    max_tokens: int | None = 16


class MessagePart(BaseModel):
    """A part of a message; only text parts are read."""

    model_config = ConfigDict(extra="allow")

    type: str = "text"
    text: str = ""


class Message(BaseModel):
    """One message of a conversation."""

    model_config = ConfigDict(extra="allow")

    role: str
    content: str | list[MessagePart] | None = None

    @property
    def text(self) -> str:
        """What it says."""
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""


class ChatBody(GenerationBody):
    """The body of /v1/chat/completions."""

    messages: list[Message] = Field(min_length=1)
    max_completion_tokens: int | None = None

    @property
    def text(self) -> str:
        """The conversation as one prompt, in a plain chat template."""
        said = "".join(f"<|im_start|>{each.role}\n{each.text}<|im_end|>\n" for each in self.messages)
        return f"{said}<|im_start|>assistant\n"


class TokenizeBody(BaseModel):
    """The body of /tokenize: a prompt or a conversation."""

    model_config = ConfigDict(extra="allow")

    model: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = None
    return_token_strs: bool | None = False


async def read_body(request: web.Request, kind: type[Body]) -> Body:
    """The body of a request, checked; ApiError with vLLM's wording otherwise."""
    if request.content_type != "application/json":
        raise _invalid("Unsupported Media Type: Only 'application/json' is allowed", None)
    try:
        given = orjson.loads(await request.read())
    except orjson.JSONDecodeError as error:
        raise _invalid(f"JSON decode error: {error}", "body") from error
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
        places = [".".join(["body", *map(str, each["loc"][:1])]) for each in problems]
        lines = [f"  {place}: {each['msg']}" for place, each in zip(places, problems, strict=True)]
        count = "1 validation error" if len(problems) == 1 else f"{len(problems)} validation errors"
        raise _invalid("\n".join([f"{count}:", *lines[:10]]), places[0]) from error


def _invalid(message: str, param: str | None) -> ApiError:
    return ApiError(message, kind="Bad Request", param=param)


def usage(prompt_tokens: int, completion_tokens: int) -> Mapping[str, int]:
    """Token counts as they stand in an answer."""
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "completion_tokens": completion_tokens,
    }
