"""Filler text with one word per token, token counts of prompts, and a tokenizer that agrees with both."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rest_server.emulator.asgi import BadRequest

_SOUNDS = "ba de fi go ku la me ni po ru sa te vi wo xu za".split()  # noqa: SIM905
WORDS = tuple(first + second for first in _SOUNDS for second in _SOUNDS)
"""Words of which filler texts consist."""
UNKNOWN = "<unk>"
_TOKENIZER = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [
        {
            "id": 0, "content": UNKNOWN, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": True,
        }
    ],
    "normalizer": None,
    "pre_tokenizer": {"type": "WhitespaceSplit"},
    "post_processor": None,
    "decoder": None,
    "model": {
        # Clients that cut prompts out of other texts decode them without special tokens.
        "type": "WordLevel", "unk_token": WORDS[0],
        "vocab": {text: i for i, text in enumerate((UNKNOWN, *WORDS))},
    },
}  # fmt: skip
_CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "unk_token": UNKNOWN,
    "eos_token": UNKNOWN,
    "pad_token": UNKNOWN,
    "clean_up_tokenization_spaces": False,
    "model_max_length": 1_000_000,
    "chat_template": "{% for message in messages %}{{ message['content'] }} {% endfor %}",
}


def word(seed: int, k: int) -> str:
    """Return token k of the text of a request, including the space before it."""
    text = WORDS[(seed + 7 * k + k * k) % len(WORDS)]
    return text if k == 0 else " " + text


def filler_text(seed: int, tokens: int) -> str:
    """Return a filler text with a number of tokens."""
    return "".join(word(seed, k) for k in range(tokens))


def tokens_until_stop(seed: int, tokens: int, stops: list[str]) -> int | None:
    """Return the number of tokens of a text up to the end of the first stop string; None if there is none.

    Args:
        seed: random seed of the text.
        tokens: number of tokens of the text.
        stops: the stop strings.
    """
    text, longest = "", max(map(len, stops))
    for k in range(tokens):
        text = (text + word(seed, k))[-longest - 16 :]
        if any(stop in text for stop in stops):
            return k + 1
    return None


def prompt_tokens(prompt: Any) -> Sequence[str | int]:
    """Return the tokens of a prompt, at least one: the words of a text, or its token ids.

    Raises:
        BadRequest: it is neither.
    """
    if isinstance(prompt, str):
        return prompt.split() or [UNKNOWN]
    if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
        return prompt_tokens(prompt[0])
    if isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt):
        return prompt
    raise BadRequest("prompt: must be a text, a list of token ids, or a list with one of these")


def chat_tokens(messages: Any) -> Sequence[str]:
    """Return the tokens of a conversation, at least one: the words of its messages.

    Raises:
        BadRequest: it is not a list of messages.
    """
    if not isinstance(messages, list) or not messages:
        raise BadRequest("messages: must be a list of at least one message")
    words = list[str]()
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else message
        parts = content if isinstance(content, list) else [content or ""]
        texts = [part.get("text", "") if isinstance(part, dict) else part for part in parts]
        if not all(isinstance(text, str) for text in texts):
            raise BadRequest("messages: content must be a text or a list of parts")
        words += (word for text in texts for word in text.split())
    return words or [UNKNOWN]


def write_tokenizer(folder: Path) -> None:
    """Write a tokenizer for benchmark clients in the format of `transformers`, with one token per word."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in (("tokenizer.json", _TOKENIZER), ("tokenizer_config.json", _CONFIG)):
        (folder / name).write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
