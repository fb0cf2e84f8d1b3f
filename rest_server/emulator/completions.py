"""Completion requests as defined by OpenAI's API and vLLM: their fields, and the bytes of the response."""

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rest_server.emulator.asgi import EVENTS, BadRequest, Send, begin, encoded, error_of, reply_error
from rest_server.emulator.words import chat_tokens, filler_text, prompt_tokens, tokens_until_stop, word

DEFAULT_TOKENS = 16
"""Number of output tokens of a completion without `max_tokens`, as in vLLM; chats have no limit."""
DONE = b"data: [DONE]\n\n"
_UNSUPPORTED = {"n": 1, "best_of": 1, "echo": False, "logprobs": None, "top_logprobs": None, "suffix": None}
"""Fields that change the output, with the only value of each that is emulated."""


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A request for a completion or chat completion."""

    is_chat: bool
    prompt_words: Sequence[str | int]
    """Tokens of the prompt."""
    tokens: int
    """Number of output tokens."""
    reason: str
    """Reason why the output ends: `stop` or `length`."""
    seed: int
    """Random seed of the output's text."""
    cut: int | None
    """Number of characters of the text before a stop string; None without a stop string. A stream only cuts
    its last word.
    """
    streams: bool
    usage: bool
    """Whether a stream ends with its token usage."""
    running_usage: bool
    """Whether every event of a stream has its token usage."""

    @property
    def prompt(self) -> int:
        """Number of prompt tokens."""
        return len(self.prompt_words)


def question_of(
    body: Mapping[str, Any], *, is_chat: bool, longest: int, natural: int, seed: int
) -> CompletionRequest:
    """Read a completion request.

    Args:
        body: JSON object of the request.
        is_chat: whether it has messages instead of a prompt.
        longest: maximum number of tokens of prompt and output together.
        natural: number of tokens after which the model ends the output itself, without `ignore_eos`.
        seed: random seed of the text.

    Raises:
        BadRequest: a field is invalid or not emulated.
    """
    for name, only in _UNSUPPORTED.items():
        if body.get(name, only) not in (only, None, False):
            raise BadRequest(f"{name}: {body[name]!r} is not emulated; leave it out")
    words = chat_tokens(body.get("messages")) if is_chat else prompt_tokens(body.get("prompt"))
    prompt = len(words)
    asked = body.get("max_completion_tokens") or body.get("max_tokens")
    if asked is not None and (type(asked) is not int or asked < 1):
        raise BadRequest(f"max_tokens: must be an integer of at least 1, not {asked!r}")
    most = asked or (longest - prompt if is_chat else DEFAULT_TOKENS)
    if prompt + (asked or 1) > longest:
        raise BadRequest(
            f"This model's maximum context length is {longest} tokens. However, you requested "
            f"{prompt + (asked or 1)} tokens ({prompt} in the prompt, {asked or 1} in the completion)."
        )
    least = body.get("min_tokens") or 0
    tokens, reason = most, "length"
    if not body.get("ignore_eos") and max(natural, least) < most:
        tokens, reason = max(natural, least), "stop"
    stop = body.get("stop") or []
    stops = [one for one in ([stop] if isinstance(stop, str) else stop) if one]
    stopped = tokens_until_stop(seed, tokens, stops) if stops else None
    cut = None
    if stopped is not None:
        tokens, reason = stopped, "stop"
        text = filler_text(seed, tokens)
        cut = min(text.index(one) for one in stops if one in text)
    options = body.get("stream_options") or {}
    return CompletionRequest(
        is_chat, words, tokens, reason, seed, cut, bool(body.get("stream")),
        bool(options.get("include_usage")), bool(options.get("continuous_usage_stats")),
    )  # fmt: skip


class Writer:
    """Writes the response to a completion request."""

    def __init__(self, question: CompletionRequest, model: str) -> None:
        self._question = question
        object_name = "chat.completion" if question.is_chat else "text_completion"
        self._head = {
            "id": f"{'chatcmpl' if question.is_chat else 'cmpl'}-{uuid.uuid4().hex}",
            "object": object_name + ".chunk" if question.is_chat and question.streams else object_name,
            "created": int(time.time()),
            "model": model,
        }
        self._event = b"data: " + encoded(self._head)[:-1] + b',"choices":[{"index":0,'

    def usage(self, made: int) -> dict[str, int]:
        """Return the token usage after a number of output tokens."""
        prompt = self._question.prompt
        return {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made}

    def event(self, k: int, *, ended: bool) -> bytes:
        """Return the stream event of token k; the event of the last token includes the end of the stream."""
        question = self._question
        text = (word(question.seed, k) if question.cut is None or not ended else self._last_word(k)).encode()
        if not question.is_chat:
            part = b'"text":"%b"' % text
        elif k == 0:
            part = b'"delta":{"role":"assistant","content":"%b"}' % text
        else:
            part = b'"delta":{"content":"%b"}' % text
        reason = b'"%b"' % question.reason.encode() if ended else b"null"
        tail = b',"usage":' + encoded(self.usage(k + 1)) if question.running_usage else b""
        event = b'%b%b,"logprobs":null,"finish_reason":%b}]%b}\n\n' % (self._event, part, reason, tail)
        if not ended:
            return event
        if question.usage:
            event += b"data: " + encoded(self._head | {"choices": [], "usage": self.usage(k + 1)}) + b"\n\n"
        return event + DONE

    def _last_word(self, k: int) -> str:
        """Return the part of the last word that precedes the stop string."""
        seed = self._question.seed
        return filler_text(seed, k + 1)[len(filler_text(seed, k)) : self._question.cut]

    def whole(self) -> dict[str, Any]:
        """Return the response without a stream."""
        question = self._question
        text = filler_text(question.seed, question.tokens)[: question.cut]
        part = {"message": {"role": "assistant", "content": text}} if question.is_chat else {"text": text}
        choice = {"index": 0, **part, "logprobs": None, "finish_reason": question.reason}
        return self._head | {"choices": [choice], "usage": self.usage(question.tokens)}


def error_event(error: Mapping[str, Any]) -> bytes:
    """Return the last event of a stream that fails."""
    return b"data: " + encoded(error) + b"\n\n" + DONE


async def refuse(send: Send, message: str, status: int, *, streams: bool) -> None:
    """Reject a request as vLLM does: with an error status, or in an event of a stream."""
    if streams:
        await begin(send, 200, EVENTS)
        await send({"type": "http.response.body", "body": error_event(error_of(message, status))})
    else:
        await reply_error(send, message, status)
