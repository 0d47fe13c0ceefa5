"""The chat template: how messages become one text, and what that costs.

    <|T>[tools as JSON]<|/>            only with tools
    <|s>content<|/>                    a message: 8 tokens besides its content
    <|a>content<|c>name arguments<|/>  a tool call: 5 tokens besides name and arguments
    <|a>                               where the reply starts: 4 tokens

So `prompt_tokens = Σ(8 + bytes of content) + 4`. A reply is rendered back exactly as it was generated, so a
conversation that goes on has this prompt and reply as its prefix:
`next prompt = prompt + output + 4 + Σ(8 + bytes of each new message) + 4`. Text parts are joined; other parts
(images) and tools are written as compact JSON; names and tool-call ids are left out. Arguments that are JSON
are written compactly, in their own order, as the usual templates do.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentbatch.emulator.problem import HttpProblem
from agentbatch.emulator.text import encode

MESSAGE_TOKENS = 8
"""Tokens of a message besides its content."""
REPLY_HEADER_TOKENS = 4
"""Tokens that open the reply at the end of every prompt."""

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_OPEN = {role: encode(f"<|{role[0]}>") for role in _ROLES}
_CLOSE = b"<|/>"
_TOOLS = b"<|T>"
_CALL = b"<|c>"


def render_prompt(messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None) -> bytes:
    """Return the prompt's tokens.

    Args:
        messages: of a chat completion, at least one.
        tools: its tool definitions, if any.

    Raises:
        HttpProblem: 400, a message that is none.
    """
    out = [_TOOLS, encode(_compact(tools)), _CLOSE] if tools else []
    for place, message in enumerate(messages):
        where = f"messages[{place}]"
        opening = _OPEN.get(_field(message, "role", where, str))
        if opening is None:
            raise HttpProblem(400, f"{where}.role must be one of {', '.join(_OPEN)}", f"{where}.role")
        out.append(opening)
        out.append(_content(message.get("content"), where))
        calls = message.get("tool_calls")
        if calls is None and isinstance(message.get("function_call"), Mapping):
            calls = [{"function": message["function_call"]}]
        if calls:
            out.extend(_calls(calls, where))
        out.append(_CLOSE)
    out.append(_OPEN["assistant"])
    return b"".join(out)


def render_reply(text: str, calls: Sequence[tuple[str, str]]) -> tuple[bytes, int]:
    """Return a reply's tokens and how many of them are text; then come its `(name, arguments)` calls."""
    content = encode(text)
    return content + b"".join(_call(name, arguments) for name, arguments in calls), len(content)


def _content(content: Any, where: str) -> bytes:
    if content is None:
        return b""
    if isinstance(content, str):
        return encode(content)
    if not isinstance(content, list):
        raise HttpProblem(400, f"{where}.content must be text, a list of parts or null", f"{where}.content")
    parts = []
    for part in content:
        if isinstance(part, str):
            parts.append(part)
        elif isinstance(part, Mapping):
            text = part.get("text")
            parts.append(text if part.get("type") == "text" and isinstance(text, str) else _compact(part))
        else:
            raise HttpProblem(400, f"{where}.content has a part that is no object", f"{where}.content")
    return encode("".join(parts))


def _calls(calls: Any, where: str) -> list[bytes]:
    if not isinstance(calls, list):
        raise HttpProblem(400, f"{where}.tool_calls must be a list", f"{where}.tool_calls")
    out = []
    for place, call in enumerate(calls):
        here = f"{where}.tool_calls[{place}]"
        function = _field(call, "function", here, Mapping)
        arguments = function.get("arguments", "")
        arguments = arguments if isinstance(arguments, str) else _compact(arguments)
        out.append(_call(_field(function, "name", f"{here}.function", str), arguments))
    return out


def _call(name: str, arguments: str) -> bytes:
    with contextlib.suppress(ValueError, RecursionError):  # not JSON: the model's slip, kept as it is
        arguments = _compact(json.loads(arguments))
    return _CALL + encode(f"{name} {arguments}")


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _field(value: Any, name: str, where: str, kind: type) -> Any:
    if not isinstance(value, Mapping):
        raise HttpProblem(400, f"{where} must be an object", where)
    found = value.get(name)
    if not isinstance(found, kind):
        wanted = "a string" if kind is str else "an object"
        raise HttpProblem(400, f"{where}.{name} is missing or not {wanted}", f"{where}.{name}")
    return found
