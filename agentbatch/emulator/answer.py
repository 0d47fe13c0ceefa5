"""Replies in OpenAI's shapes: whole objects and server-sent chunks."""

from __future__ import annotations

import hashlib
import json
import time
from typing import Any

from agentbatch.emulator.ask import Ask
from agentbatch.emulator.text import whole_characters
from agentbatch.sim import Finished

DONE = b"data: [DONE]\n\n"


def usage(end: Finished) -> dict[str, Any]:
    """Return the usage object; cached tokens are always told."""
    return {
        "prompt_tokens": end.prompt_tokens,
        "completion_tokens": end.output_tokens,
        "total_tokens": end.prompt_tokens + end.output_tokens,
        "prompt_tokens_details": {"cached_tokens": end.cached_tokens},
    }


def whole(ask: Ask, rid: str, end: Finished) -> bytes:
    """Return the body of an answer that is not streamed."""
    text = ask.answer.tokens[:ask.answer.text_tokens].decode("utf-8", "ignore")
    choice: dict[str, Any] = {"index": 0, "finish_reason": ask.answer.finish_reason, "logprobs": None}
    if ask.chat:
        message: dict[str, Any] = {"role": "assistant", "content": text or None}
        if ask.answer.calls:
            message["tool_calls"] = tool_calls(ask)
        choice["message"] = message
    else:
        choice["text"] = text
    body = {**_head(ask, rid, stream=False), "choices": [choice], "usage": usage(end)}
    return json.dumps(body).encode()


def tool_calls(ask: Ask) -> list[dict[str, Any]]:
    """Return the reply's tool calls; ids follow from the prompt and are unique in a conversation."""
    calls = []
    for place, call in enumerate(ask.answer.calls):
        name = hashlib.blake2b(ask.seed + place.to_bytes(4, "little"), digest_size=12).hexdigest()
        function = {"name": call.name, "arguments": call.arguments_text}
        calls.append({"id": f"call_{name}", "type": "function", "function": function})
    return calls


class Chunks:
    """The chunks of one streamed answer, in order; remembers what was sent."""

    def __init__(self, ask: Ask, rid: str) -> None:
        self._ask = ask
        self._sent = 0
        self._opened = False
        head = json.dumps(_head(ask, rid, stream=True))[:-1]
        self._start = f"data: {head}, ".encode()
        no_usage = b', "usage": null' if ask.include_usage else b""
        self._stop = no_usage + b"}\n\n"

    def text(self, produced: int) -> bytes:
        """Return the chunk that brings the text up to `produced` tokens, or nothing if that adds no character."""
        ask = self._ask
        end = whole_characters(ask.answer.tokens, min(produced, ask.answer.text_tokens))
        if end <= self._sent and self._opened:
            return b""
        piece = ask.answer.tokens[self._sent:end].decode("utf-8", "ignore")
        self._sent = end
        if not ask.chat:
            self._opened = True
            return self._choice({"text": piece}, None)
        delta = {"content": piece} if self._opened else {"role": "assistant", "content": piece}
        self._opened = True
        return self._choice({"delta": delta}, None)

    def end(self, end: Finished) -> bytes:
        """Return all that is left: text, tool calls, the finish reason, usage if asked for, the end mark."""
        ask = self._ask
        out = [self.text(len(ask.answer.tokens))]
        for place, call in enumerate(tool_calls(ask)):
            function = call["function"]
            opening = {**call, "index": place, "function": {"name": function["name"], "arguments": ""}}
            rest = {"index": place, "function": {"arguments": function["arguments"]}}
            out += [self._choice({"delta": {"tool_calls": [part]}}, None) for part in (opening, rest)]
        out.append(self._choice({"delta": {}} if ask.chat else {"text": ""}, ask.answer.finish_reason))
        if ask.include_usage:
            out.append(self._start + b'"choices": [], "usage": ' + json.dumps(usage(end)).encode() + b"}\n\n")
        out.append(DONE)
        return b"".join(out)

    def _choice(self, fields: dict[str, Any], reason: str | None) -> bytes:
        choice = {"index": 0, **fields, "logprobs": None, "finish_reason": reason}
        return self._start + b'"choices": [' + json.dumps(choice).encode() + b"]" + self._stop


def _head(ask: Ask, rid: str, *, stream: bool) -> dict[str, Any]:
    kind = "text_completion"
    if ask.chat:
        kind = "chat.completion.chunk" if stream else "chat.completion"
    prefix = "chatcmpl" if ask.chat else "cmpl"
    return {"id": f"{prefix}-{rid}", "object": kind, "created": int(time.time()), "model": ask.model}
