"""Answers in the shapes of the two generating routes, whole and in chunks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from serving.simulator.protocol import usage

Ended = tuple[int, str, str | None]
"""A choice that ended: its index, its text and its finish reason."""


class AnswerStyle(Protocol):
    """How one route words its answers."""

    def request_id(self, index: int) -> str:
        """The id under which the engine knows the choice."""
        ...

    def whole(self, choices: Sequence[Ended], prompt_tokens: int, completion_tokens: int) -> dict[str, object]:
        """The answer in one piece."""
        ...

    def opening(self) -> list[dict[str, object]]:
        """Chunks before the first text."""
        ...

    def chunk(self, index: int, text: str, finish: str | None) -> dict[str, object]:
        """One chunk of a stream."""
        ...

    def closing(self, prompt_tokens: int, completion_tokens: int) -> dict[str, object]:
        """The chunk with the token counts of a whole stream."""
        ...


@dataclass(frozen=True, slots=True)
class CompletionStyle:
    """Answers of /v1/completions. `created` is Unix seconds."""

    id: str
    model: str
    created: int

    def request_id(self, index: int) -> str:
        return f"{self.id}-{index}"

    def whole(self, choices: Sequence[Ended], prompt_tokens: int, completion_tokens: int) -> dict[str, object]:
        return {
            **self._frame(),
            "choices": [
                {
                    "index": index,
                    "text": text,
                    "logprobs": None,
                    "finish_reason": finish,
                    "stop_reason": None,
                    "token_ids": None,
                    "prompt_logprobs": None,
                    "prompt_token_ids": None,
                    "routed_experts": None,
                }
                for index, text, finish in choices
            ],
            "service_tier": None,
            "system_fingerprint": None,
            "usage": {**usage(prompt_tokens, completion_tokens), "prompt_tokens_details": None},
            "kv_transfer_params": None,
        }

    def opening(self) -> list[dict[str, object]]:
        return []

    def chunk(self, index: int, text: str, finish: str | None) -> dict[str, object]:
        choice = {"index": index, "text": text, "logprobs": None, "finish_reason": finish, "stop_reason": None}
        return {**self._frame(), "choices": [choice]}

    def closing(self, prompt_tokens: int, completion_tokens: int) -> dict[str, object]:
        return {**self._frame(), "choices": [], "usage": usage(prompt_tokens, completion_tokens)}

    def _frame(self) -> dict[str, object]:
        return {"id": self.id, "object": "text_completion", "created": self.created, "model": self.model}


@dataclass(frozen=True, slots=True)
class ChatStyle:
    """Answers of /v1/chat/completions. `created` is Unix seconds."""

    id: str
    model: str
    created: int

    def request_id(self, index: int) -> str:
        return self.id if index == 0 else f"{self.id}-{index}"

    def whole(self, choices: Sequence[Ended], prompt_tokens: int, completion_tokens: int) -> dict[str, object]:
        return {
            **self._frame("chat.completion"),
            "choices": [
                {
                    "index": index,
                    "message": {
                        "role": "assistant",
                        "content": text,
                        "refusal": None,
                        "annotations": None,
                        "audio": None,
                        "function_call": None,
                        "reasoning": None,
                    },
                    "logprobs": None,
                    "finish_reason": finish,
                    "stop_reason": None,
                    "token_ids": None,
                    "routed_experts": None,
                }
                for index, text, finish in choices
            ],
            "service_tier": None,
            "system_fingerprint": None,
            "usage": {**usage(prompt_tokens, completion_tokens), "prompt_tokens_details": None},
            "prompt_logprobs": None,
            "prompt_token_ids": None,
            "kv_transfer_params": None,
        }

    def opening(self) -> list[dict[str, object]]:
        delta = {"role": "assistant", "content": ""}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        return [{**self._frame("chat.completion.chunk"), "choices": [choice]}]

    def chunk(self, index: int, text: str, finish: str | None) -> dict[str, object]:
        choice: dict[str, object] = {"index": index, "delta": {"content": text}, "logprobs": None, "finish_reason": finish}
        if finish is not None:
            choice["stop_reason"] = None
        return {**self._frame("chat.completion.chunk"), "choices": [choice]}

    def closing(self, prompt_tokens: int, completion_tokens: int) -> dict[str, object]:
        counts = usage(prompt_tokens, completion_tokens)
        return {**self._frame("chat.completion.chunk"), "choices": [], "usage": counts}

    def _frame(self, kind: str) -> dict[str, object]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}
