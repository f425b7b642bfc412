"""The generating routes: /v1/completions and /v1/chat/completions, streamed or whole, and /v1/models and /tokenize."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import orjson
from aiohttp import web

from serving.simulator import words
from serving.simulator.answers import AnswerStyle, ChatStyle, CompletionStyle
from serving.simulator.driver import Aborted, EngineDied, EngineDriver, News
from serving.simulator.protocol import (
    ApiError,
    ChatBody,
    CompletionBody,
    GenerationBody,
    TokenizeBody,
    json_response,
    read_body,
    usage,
)
from serving.simulator.request import FinishReason, Request
from serving.simulator.settings import SimulatorSettings
from serving.simulator.spans import Caller

PRIORITY_HEADER = "X-Vllm-Priority"
_BUSY = {
    "max_num_queued_reqs": "The engine is currently busy and cannot accept new requests."
    " Please try again later or on a different instance.",
    "max_num_queued_tokens": "The engine has reached its prefill token backlog limit."
    " Please try again later or on a different instance.",
}
_DIED = "EngineCore encountered an issue. See stack trace (above) for the root cause."


@dataclass(slots=True)
class Choice:
    """One prompt of a request on its way through the engine, and what was generated for it so far."""

    index: int
    request: Request
    voice: int
    tokens: int = 0
    finish: str | None = None

    def take(self, count: int) -> str:
        """The text of the next `count` tokens."""
        text = "".join(words.word(self.voice, self.tokens + step) for step in range(count))
        self.tokens += count
        return text


@dataclass(slots=True)
class Generation:
    """A client's request: its choices and what the engine says of them."""

    style: AnswerStyle
    choices: dict[str, Choice]
    news: "asyncio.Queue[News]" = field(default_factory=asyncio.Queue)

    @property
    def prompt_tokens(self) -> int:
        """Prompt tokens of all choices."""
        return sum(each.request.prompt_tokens for each in self.choices.values())

    @property
    def completion_tokens(self) -> int:
        """Tokens generated so far."""
        return sum(each.tokens for each in self.choices.values())

    async def changes(self) -> AsyncIterator[tuple[Choice, str]]:
        """Each choice with the text that was added to it, until all have ended. ApiError where the engine died."""
        open_choices = len(self.choices)
        while open_choices:
            news = await self.news.get()
            if isinstance(news, EngineDied):
                raise ApiError(_DIED, status=500, kind="InternalServerError")
            choice = self.choices[news.id]
            if isinstance(news, Aborted):
                text, choice.finish = "", FinishReason.ABORT.value
            else:
                text = choice.take(news.tokens)
                choice.finish = news.finished.reason.value if news.finished else None
            open_choices -= choice.finish is not None
            yield choice, text


class OpenAiRoutes:
    """The handlers. `callers` keeps what spans need to know of the requests in flight."""

    def __init__(self, settings: SimulatorSettings, driver: EngineDriver, callers: dict[str, Caller]) -> None:
        self._settings = settings
        self._driver = driver
        self._callers = callers
        self._started = int(driver.clock.now())
        self.load = 0

    def routes(self) -> list[web.RouteDef]:
        """The routes to be added to an application."""
        return [
            web.post("/v1/completions", self.completions),
            web.post("/v1/chat/completions", self.chat),
            web.get("/v1/models", self.models),
            web.post("/tokenize", self.tokenize),
        ]

    async def completions(self, request: web.Request) -> web.StreamResponse:
        """Complete one or several prompts."""
        body = await read_body(request, CompletionBody)
        self._check_model(body.model)
        prompts = [self._tokens(each) for each in _prompts(body)]
        limits = [self._limit(body.max_tokens, len(tokens), "max_tokens") for tokens in prompts]
        style = CompletionStyle(self._new_id("cmpl", request, body), self._settings.model, int(self._driver.clock.now()))
        return await self._answer(request, body, style, prompts, limits)

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """Answer a conversation."""
        body = await read_body(request, ChatBody)
        self._check_model(body.model)
        tokens = self._tokens(body.text)
        asked, name = body.max_tokens, "max_tokens"
        if body.max_completion_tokens is not None:
            asked, name = body.max_completion_tokens, "max_completion_tokens"
        style = ChatStyle(self._new_id("chatcmpl", request, body), self._settings.model, int(self._driver.clock.now()))
        return await self._answer(request, body, style, [tokens], [self._limit(asked, len(tokens), name)])

    async def models(self, _request: web.Request) -> web.Response:
        """The one model that is served."""
        card = {
            "id": self._settings.model,
            "object": "model",
            "created": self._started,
            "owned_by": "vllm",
            "root": self._settings.model,
            "parent": None,
            "max_model_len": self._settings.max_model_len,
            "permission": [_permission(self._started)],
        }
        return json_response({"object": "list", "data": [card]})

    async def tokenize(self, request: web.Request) -> web.Response:
        """The tokens of a prompt or a conversation."""
        body = await read_body(request, TokenizeBody)
        self._check_model(body.model)
        if (body.prompt is None) == (body.messages is None):
            raise ApiError("give either a prompt or messages", kind="Bad Request", param="body")
        text = body.prompt if body.prompt is not None else ChatBody(messages=body.messages or []).text
        return json_response(
            {
                "count": len(tokens := words.token_ids(text)),
                "max_model_len": self._settings.max_model_len,
                "tokens": tokens,
                "token_strs": words.pieces(text) if body.return_token_strs else None,
            }
        )

    async def _answer(
        self,
        request: web.Request,
        body: GenerationBody,
        style: AnswerStyle,
        prompts: list[list[int]],
        limits: list[int],
    ) -> web.StreamResponse:
        if self._driver.dead:
            raise ApiError(_DIED, status=500, kind="InternalServerError")
        if (reason := self._driver.frontend.check_admission(len(prompts))) is not None:
            raise ApiError(_BUSY[reason], status=503, kind="Service Unavailable")
        generation = self._submit(request, body, style, prompts, limits)
        self.load += 1
        try:
            return await (_stream(request, body, generation) if body.stream else _whole(generation))
        finally:
            # Also when the client has left, which cancels this handler: what has not ended by then is aborted.
            self.load -= 1
            for request_id in generation.choices:
                self._driver.leave(request_id)
                if self._driver.experts is not None:
                    self._driver.experts.end(request_id)
                self._callers.pop(request_id, None)

    def _submit(
        self,
        request: web.Request,
        body: GenerationBody,
        style: AnswerStyle,
        prompts: list[list[int]],
        limits: list[int],
    ) -> Generation:
        now = self._driver.clock.monotonic()
        seed = self._settings.seed if body.seed is None else body.seed
        generation = Generation(style, {})
        caller = Caller(self._driver.clock.now(), request.headers.get("traceparent"), body.top_p, body.temperature)
        for index, (tokens, limit) in enumerate(zip(prompts, limits, strict=True)):
            voice = words.voice_of(tokens, seed)
            stop_after = words.tokens_until(voice, limit, body.stops) if body.stops else None
            made = Request(
                id=style.request_id(index),
                prompt_tokens=len(tokens),
                output_tokens=stop_after or limit,
                arrival=now,
                priority=_priority(request, body),
                prefix_keys=words.prefix_keys(tokens, self._settings.block_size),
                defer_seconds=self._settings.grammar_seconds if body.constrained else 0.0,
                finish=FinishReason.STOP if stop_after else FinishReason.LENGTH,
            )
            generation.choices[made.id] = Choice(index, made, voice)
            self._callers[made.id] = caller
            if self._driver.experts is not None:
                self._driver.experts.begin(made.id, tokens, voice)
            self._driver.submit(made, limit, generation.news)
        return generation

    def _check_model(self, model: str | None) -> None:
        if model and model != self._settings.model:
            raise ApiError(f"The model `{model}` does not exist.", status=404, kind="NotFoundError", param="model")

    def _tokens(self, prompt: str | list[int]) -> list[int]:
        tokens = words.token_ids(prompt) if isinstance(prompt, str) else prompt
        if not tokens:
            raise ApiError("The prompt has no tokens.", param="prompt")
        if len(tokens) >= self._settings.max_model_len:
            raise ApiError(
                f"This model's maximum context length is {self._settings.max_model_len} tokens. However, your prompt"
                f" contains {len(tokens)} input tokens, which exceeds this limit even without any output tokens."
                " Please reduce the length of the input prompt.",
                param="input_tokens",
            )
        return tokens

    def _limit(self, asked: int | None, prompt_tokens: int, name: str) -> int:
        longest = self._settings.max_model_len
        if asked is None:
            return longest - prompt_tokens
        if asked < 1:
            raise ApiError(f"{name} must be at least 1, got {asked}.", param=name)
        if asked > longest:
            raise ApiError(
                f"{name}={asked} cannot be greater than max_model_len={longest}. Please request fewer output tokens.",
                param=name,
            )
        return min(asked, longest - prompt_tokens)

    def _new_id(self, prefix: str, request: web.Request, body: GenerationBody) -> str:
        given = request.headers.get("X-Request-Id") or body.request_id
        made = f"{prefix}-{given or uuid.uuid4().hex[:16]}"
        # vLLM adds random letters of its own inside; here an id that is in flight already gets them too.
        return f"{made}-{uuid.uuid4().hex[:8]}" if self._in_flight(made) else made

    def _in_flight(self, made: str) -> bool:
        return made in self._callers or f"{made}-0" in self._callers


async def _whole(generation: Generation) -> web.Response:
    texts = {choice.index: "" for choice in generation.choices.values()}
    async for choice, text in generation.changes():
        texts[choice.index] += text
    choices = [(each.index, texts[each.index], each.finish) for each in generation.choices.values()]
    return json_response(generation.style.whole(choices, generation.prompt_tokens, generation.completion_tokens))


async def _stream(request: web.Request, body: GenerationBody, generation: Generation) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    options = body.stream_options
    greeted = False
    try:
        async for choice, text in generation.changes():
            chunks = [] if greeted else generation.style.opening()
            greeted = True
            chunk = generation.style.chunk(choice.index, text, choice.finish)
            if options is not None and options.continuous_usage_stats:
                chunk["usage"] = usage(choice.request.prompt_tokens, choice.tokens)
            await response.write(_events([*chunks, chunk]))
        if options is not None and options.include_usage:
            await response.write(_events([generation.style.closing(generation.prompt_tokens, generation.completion_tokens)]))
    except ApiError as error:
        await response.write(_events([error.body]))
    await response.write(b"data: [DONE]\n\n")
    await response.write_eof()
    return response


def _events(chunks: Sequence[object]) -> bytes:
    return b"".join(b"data: " + orjson.dumps(chunk) + b"\n\n" for chunk in chunks)


def _prompts(body: CompletionBody) -> list[str | list[int]]:
    prompt = body.prompt
    if isinstance(prompt, str):
        return [prompt]
    if not prompt:
        raise ApiError("The prompt has no tokens.", param="prompt")
    nested: list[str | list[int]] = []
    flat: list[int] = []
    for each in prompt:
        if isinstance(each, int):
            flat.append(each)
        else:
            nested.append(each)
    return nested or [flat]


def _priority(request: web.Request, body: GenerationBody) -> int:
    try:
        return int(request.headers.get(PRIORITY_HEADER, body.priority))
    except ValueError:
        return body.priority


def _permission(created: int) -> dict[str, object]:
    return {
        "id": f"modelperm-{uuid.uuid4().hex[:16]}",
        "object": "model_permission",
        "created": created,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }
