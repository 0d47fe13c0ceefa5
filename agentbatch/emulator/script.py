"""Scripted replies: let a real agent loop, tool calls included, run against the emulator.

In process, a script is a callable from the request's messages to a `Reply`, or None to leave it to the
generator. For the command it is a JSONL file whose first line with a matching `when` answers:

    {"when": "substring of the last message", "reply": {"text": "Let me look.", "tool_calls": [{"name":
    "ls", "arguments": {"path": "."}}]}} {"when": "README.md", "reply": {"text": "It is there."}}

`when` may be left out (always matches). It is compared with the last message's text, tool results included.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentbatch.errors import UsageError


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool call of a reply; `arguments` is an object, or a string sent as it is."""

    name: str
    arguments: Mapping[str, Any] | str

    @property
    def arguments_text(self) -> str:
        """The arguments as they go over the wire."""
        if isinstance(self.arguments, str):
            return self.arguments
        return json.dumps(self.arguments, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model says: text, tool calls or both; never neither."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()

    def __post_init__(self) -> None:
        if not self.text and not self.tool_calls:
            raise UsageError("a scripted reply needs text or tool calls; it has neither")


Script = Callable[[Sequence[Mapping[str, Any]]], Reply | None]
"""From the messages of a chat completion to its reply, or None for generated text."""


_SHAPE = '{"when": ..., "reply": {"text": ..., "tool_calls": [...]}}'


def load_script(path: str | Path) -> Script:
    """Read a script file.

    Raises:
        UsageError: the file cannot be read, or a line is no `{"when": ..., "reply": ...}`; names file and
            line.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the script {path}: {error}") from error
    rules = [_rule(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not rules:
        raise UsageError(f"the script {path} has no lines")

    def script(messages: Sequence[Mapping[str, Any]]) -> Reply | None:
        last = _text(messages[-1].get("content"))
        return next((reply for when, reply in rules if when in last), None)

    return script


def _rule(line: str, where: str) -> tuple[str, Reply]:
    try:
        rule = json.loads(line)
        when, reply = rule.get("when", ""), rule["reply"]
        calls = tuple(
            ToolCall(call["name"], call.get("arguments", {})) for call in reply.get("tool_calls") or ()
        )
        text = reply.get("text") or ""
        if not isinstance(when, str) or not isinstance(text, str):
            raise TypeError("when and text are strings")
        for call in calls:
            if not isinstance(call.name, str) or not isinstance(call.arguments, (str, dict)):
                raise TypeError("a tool call is {name: string, arguments: object or string}")
        return when, Reply(text, calls)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{where}: a line is {_SHAPE}; this one is not: {error!r}") from error


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return ""
