"""One model call as understood from its body: the prompt's tokens and the reply decided for it.

Lives here: reading and refusing bodies, and choosing the reply. The reply is settled before the request is
queued: a script's, or generated text of the length that the request fixes (`ignore_eos` with `max_tokens`)
or its prompt seeds. `stop`, sampling parameters and `response_format` are accepted and change nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from agentbatch.emulator import text
from agentbatch.emulator.problem import HttpProblem
from agentbatch.emulator.script import Reply, Script, ToolCall
from agentbatch.emulator.template import render_prompt, render_reply

_COMPLETION_TOKENS = 16  # what /v1/completions generates when it is not told


@dataclass(frozen=True, slots=True)
class Answer:
    """The reply: `tokens[:text_tokens]` is text, the rest are its tool calls as the template writes them."""

    tokens: bytes
    text_tokens: int
    calls: tuple[ToolCall, ...]
    finish_reason: str


@dataclass(frozen=True, slots=True)
class Ask:
    """What was asked, and what will be answered.

    `max_new_tokens` is the limit that the engine knows; None where the length is fixed (`ignore_eos`).
    """

    chat: bool
    model: str
    stream: bool
    include_usage: bool
    prompt: bytes
    seed: bytes
    answer: Answer
    max_new_tokens: int | None


def read_ask(body: bytes, *, chat: bool, context_tokens: int, script: Script | None) -> Ask:
    """Understand a body of /v1/chat/completions (`chat`) or /v1/completions.

    Args:
        body: the raw body.
        chat: which of the two.
        context_tokens: most tokens of prompt and output together.
        script: tried first for a chat completion.

    Raises:
        HttpProblem: 400, with the field and the reason.
    """
    asked = _parse(body)
    model = asked.get("model")
    if model is not None and not isinstance(model, str):
        raise HttpProblem(400, "model must be a string", "model")
    if asked.get("n") not in (None, 1):
        raise HttpProblem(400, "n must be 1: this server gives one reply per request", "n")
    stream = _flag(asked, "stream")
    include_usage = _flag(_optional(asked, "stream_options", dict, {}), "include_usage")
    reply = None
    if chat:
        messages = _optional(asked, "messages", list, [])
        if not messages:
            raise HttpProblem(400, "messages must be a list of at least one message", "messages")
        prompt = render_prompt(messages, _optional(asked, "tools", list, None))
        reply = script(messages) if script is not None else None
    else:
        prompt = _completion_prompt(asked.get("prompt"))
    limit = _limit(asked, chat)
    room = context_tokens - len(prompt)
    if room < (limit or 1):
        need = limit or 1
        raise HttpProblem(
            400,
            f"this worker's context is {context_tokens} tokens and the request needs {len(prompt) + need} "
            f"({len(prompt)} in the prompt, {need} for the reply): shorten the prompt or lower max_tokens",
            "max_tokens" if room >= 1 else "messages" if chat else "prompt",
        )
    seed = text.seed_of(prompt)
    answer = _generated(asked, seed, limit, room) if reply is None else _scripted(reply, limit or room)
    fixed = limit == len(answer.tokens) and _flag(asked, "ignore_eos")
    return Ask(
        chat=chat, model=model or "", stream=stream, include_usage=include_usage,
        prompt=prompt, seed=seed, answer=answer, max_new_tokens=None if fixed else limit or room,
    )


def _generated(asked: dict[str, Any], seed: bytes, limit: int | None, room: int) -> Answer:
    least = _count(asked, "min_tokens", least=0) or 0
    most = limit or room
    if limit is not None and _flag(asked, "ignore_eos"):
        tokens = limit
    else:
        tokens = min(max(text.reply_tokens(seed), least), most)
    reason = "length" if tokens == most else "stop"
    return Answer(text.generate(seed, tokens), tokens, (), reason)


def _scripted(reply: Reply, most: int) -> Answer:
    calls = [(call.name, call.arguments_text) for call in reply.tool_calls]
    tokens, text_tokens = render_reply(reply.text, calls)
    if len(tokens) <= most:
        return Answer(tokens, text_tokens, reply.tool_calls, "tool_calls" if calls else "stop")
    tokens = tokens[:most]
    return Answer(tokens, min(text_tokens, most), (), "length")


def _parse(body: bytes) -> dict[str, Any]:
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise HttpProblem(400, f"the body is not valid JSON: {error}") from error
    if not isinstance(asked, dict):
        raise HttpProblem(400, "the body must be a JSON object")
    return asked


def _completion_prompt(prompt: Any) -> bytes:
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str) or not prompt:
        reason = "prompt must be one string that is not empty; batches and token ids are not served"
        raise HttpProblem(400, reason, "prompt")
    return text.encode(prompt)


def _limit(asked: dict[str, Any], chat: bool) -> int | None:
    limit = _count(asked, "max_completion_tokens", least=1) if chat else None
    if limit is None:
        limit = _count(asked, "max_tokens", least=1)
    return _COMPLETION_TOKENS if limit is None and not chat else limit


def _count(asked: dict[str, Any], name: str, *, least: int) -> int | None:
    value = asked.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise HttpProblem(400, f"{name} must be a whole number of at least {least}", name)
    return value


def _flag(asked: dict[str, Any], name: str) -> bool:
    return bool(_optional(asked, name, bool, False))


def _optional(asked: dict[str, Any], name: str, kind: type, default: Any) -> Any:
    value = asked.get(name)
    if value is None:
        return default
    if not isinstance(value, kind):
        wanted = {bool: "true or false", list: "a list", dict: "an object"}[kind]
        raise HttpProblem(400, f"{name} must be {wanted}", name)
    return value
