"""One model call as understood from its body: the prompt's tokens and the reply decided for it.

Lives here: reading and refusing bodies, and choosing the reply. The reply is settled before the request is
queued: a script's, or generated text of the length that the request fixes (`ignore_eos` or `min_tokens`) or
its prompt seeds. `stop`, sampling parameters and `response_format` are accepted and change nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from agentbatch.emulator import text
from agentbatch.emulator.problem import HttpProblem
from agentbatch.emulator.script import Script, ToolCall
from agentbatch.emulator.template import render_prompt, render_reply


@dataclass(frozen=True, slots=True)
class Ask:
    """What was asked and what will be answered; `output[:content_tokens]` is text, the rest tool calls."""

    chat: bool
    model: str
    stream: bool
    include_usage: bool
    prompt: bytes
    seed: bytes
    output: bytes
    content_tokens: int
    calls: tuple[ToolCall, ...]
    finish_reason: str


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
    model = asked.get("model", "")
    if not isinstance(model, str):
        raise HttpProblem(400, "model must be a string", "model")
    if asked.get("n") not in (None, 1):
        raise HttpProblem(400, "n must be 1: this server gives one reply per request", "n")
    stream = _flag(asked, "stream")
    options = asked.get("stream_options")
    if options is not None and not isinstance(options, dict):
        raise HttpProblem(400, "stream_options must be an object", "stream_options")
    reply = None
    if chat:
        messages = asked.get("messages")
        if not isinstance(messages, list) or not messages:
            raise HttpProblem(400, "messages must be a list of at least one message", "messages")
        tools = asked.get("tools")
        if tools is not None and not isinstance(tools, list):
            raise HttpProblem(400, "tools must be a list", "tools")
        prompt = render_prompt(messages, tools)
        reply = script(messages) if script is not None else None
    else:
        prompt = _completion_prompt(asked.get("prompt"))
    seed = text.seed_of(prompt)
    limit = _limit(asked, chat)
    room = context_tokens - len(prompt)
    if room < 1 or (limit is not None and limit > room):
        raise HttpProblem(
            400,
            f"this worker's context is {context_tokens} tokens and the request needs {len(prompt) + (limit or 1)} "
            f"({len(prompt)} in the prompt, {limit or 1} for the reply); shorten the prompt or lower max_tokens",
            "max_tokens" if room >= 1 else "messages" if chat else "prompt",
        )
    most = room if limit is None else limit
    if reply is None:
        tokens = text.reply_tokens(seed)
        if _flag(asked, "ignore_eos"):
            tokens = most if limit is not None else min(tokens, most)
        else:
            tokens = max(tokens, _count(asked, "min_tokens", least=0) or 0)
        output = text.generate(seed, min(tokens, most))
        content, calls, ends = len(output), (), tokens < most or limit is None
        reason = "stop" if ends and not _flag(asked, "ignore_eos") else "length"
    else:
        output, content = render_reply(reply.text, [(call.name, call.arguments_text) for call in reply.tool_calls])
        calls, reason = reply.tool_calls, "tool_calls" if reply.tool_calls else "stop"
        if len(output) > most:
            output = output[:text.whole_characters(output, most)] or output[:1]
            content, calls, reason = min(content, len(output)), (), "length"
    return Ask(
        chat=chat, model=model, stream=stream, include_usage=stream and bool((options or {}).get("include_usage")),
        prompt=prompt, seed=seed, output=output, content_tokens=content, calls=calls, finish_reason=reason,
    )


def _parse(body: bytes) -> dict[str, Any]:
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise HttpProblem(400, f"the body is not valid JSON: {error}") from error
    if not isinstance(asked, dict):
        raise HttpProblem(400, "the body must be a JSON object")
    return asked


def _completion_prompt(prompt: Any) -> bytes:
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str):
        prompt = prompt[0]
    if not isinstance(prompt, str) or not prompt:
        raise HttpProblem(400, "prompt must be one non-empty string; batches and token ids are not served", "prompt")
    return text.encode(prompt)


def _limit(asked: dict[str, Any], chat: bool) -> int | None:
    limit = _count(asked, "max_completion_tokens", least=1) if chat else None
    if limit is None:
        limit = _count(asked, "max_tokens", least=1)
    return 16 if limit is None and not chat else limit  # 16 is the default of /v1/completions


def _count(asked: dict[str, Any], name: str, *, least: int) -> int | None:
    value = asked.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise HttpProblem(400, f"{name} must be a whole number of at least {least}", name)
    return value


def _flag(asked: dict[str, Any], name: str) -> bool:
    value = asked.get(name)
    if value is not None and not isinstance(value, bool):
        raise HttpProblem(400, f"{name} must be true or false", name)
    return bool(value)
