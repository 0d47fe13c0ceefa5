"""The little that a replay reads of a streamed chunk.

The SDK would build some ten typed objects for each, which took a quarter of a replay's client time; it lets a class
that has `build()` read the JSON itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ReplyChunk:
    """Text and usage of one chunk of a chat completion; a reasoning model's thoughts are part of its reply."""

    __slots__ = ("text", "usage")

    def __init__(self, text: str, usage: Mapping[str, Any] | None) -> None:
        self.text = text
        self.usage = usage

    @classmethod
    def build(cls, *, response: object, data: object) -> ReplyChunk:
        """Read the JSON of one chunk; the SDK calls this."""
        if not isinstance(data, Mapping):
            return cls("", None)
        deltas = [choice.get("delta") or {} for choice in data.get("choices") or ()]
        parts = [delta.get(name) for delta in deltas for name in ("reasoning_content", "content")]
        return cls("".join(part for part in parts if part), data.get("usage"))
