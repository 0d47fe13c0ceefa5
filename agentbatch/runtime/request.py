"""What both clients of a trajectory, async and sync, do to a request before it goes out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agentbatch.wire import ROUTING_KEY_HEADER

if TYPE_CHECKING:
    from agentbatch.runtime.trajectory import Trajectory

RAW_RESPONSE_HEADER = "X-Stainless-Raw-Response"
TURN_ENDPOINTS = frozenset({"/chat/completions", "/completions", "/responses"})
USAGE_ENDPOINTS = frozenset({"/chat/completions", "/completions"})
"""Where `stream_options.include_usage` exists."""


class LabelHeaders:
    """The headers that label the requests of one trajectory."""

    def __init__(self, trajectory: Trajectory) -> None:
        names = (ROUTING_KEY_HEADER, *trajectory.batch.options.label_headers)
        self._headers = dict.fromkeys(names, trajectory.label)
        self._reserved = frozenset(name.lower() for name in names)

    def put_on(self, options: Any) -> str | None:
        """Label a request; return how raw its caller wants the reply: None, "true" or "stream"."""
        given = options.headers if isinstance(options.headers, Mapping) else {}
        options.headers = {**self._unlabelled(given), **self._headers}
        raw: str | None = given.get(RAW_RESPONSE_HEADER)
        return raw

    def taken_from(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return a client's options without these headers among its default ones."""
        headers = options.get("default_headers")
        return options if headers is None else {**options, "default_headers": self._unlabelled(headers)}

    def _unlabelled(self, headers: Mapping[str, Any]) -> Mapping[str, Any]:
        """Drop our headers under any spelling: openai 2 would send a lower-case one beside ours."""
        return {name: value for name, value in headers.items() if name.lower() not in self._reserved}


def take_attempts(options: Any, default_retries: int) -> tuple[int, bool]:
    """Return how often the request may be sent and whether its body can be sent twice; tell the SDK not to retry."""
    attempts: int = 1 + options.get_max_retries(default_retries)
    options.max_retries = 0
    if options.files is not None or getattr(options, "content", None) is not None:
        return 1, False
    return attempts, True


def ask_for_usage(options: Any) -> bool:
    """Request the usage chunk of a stream; True when the caller did not, so that it must be hidden."""
    body = options.json_data
    if not isinstance(body, dict):
        return False
    asked = body.get("stream_options")
    if isinstance(asked, Mapping) and asked.get("include_usage") is not None:
        return False
    options.json_data = {**body, "stream_options": {**(asked or {}), "include_usage": True}}
    return True
