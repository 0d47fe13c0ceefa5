"""The OpenAI client of one trajectory: every request labelled, every model call a counted turn.

All resources of the SDK (chat, completions, responses; plain, raw, streaming) meet in `AsyncOpenAI.request`, which is
public API; that one method is overridden and nothing else is patched. Works with openai 2.8 to 3.x.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from openai import AsyncOpenAI, AsyncStream

from agentbatch.runtime.retry import call_with_retries
from agentbatch.runtime.stream import TurnStream
from agentbatch.runtime.turn import Turn
from agentbatch.wire import ROUTING_KEY_HEADER

if TYPE_CHECKING:
    from agentbatch.runtime.trajectory import Trajectory

RAW_RESPONSE_HEADER = "X-Stainless-Raw-Response"
TURN_ENDPOINTS = frozenset({"/chat/completions", "/completions", "/responses"})
USAGE_ENDPOINTS = frozenset({"/chat/completions", "/completions"})
"""Where `stream_options.include_usage` exists."""


class TrajectoryClient(AsyncOpenAI):
    """An `AsyncOpenAI` that labels, times and counts; `with_options()` copies stay with the trajectory.

    `close()` and `async with` are harmless: the connection pool belongs to the batch.
    """

    def __init__(self, *, trajectory: Trajectory, **options: Any) -> None:
        self._trajectory = trajectory
        super().__init__(**options)
        urls = trajectory.workers.urls
        # a copy that the caller pointed at another base_url is labelled and counted, but not placed
        self._placed = len(urls) > 1 and str(self.base_url).rstrip("/") == urls[0]

    def copy(self, *, _extra_kwargs: Mapping[str, Any] = {}, **options: Any) -> TrajectoryClient:
        """Copy with other options, as in the SDK; the copy keeps the label."""
        extra = {"trajectory": self._trajectory, **_extra_kwargs}
        return super().copy(_extra_kwargs=extra, **options)

    with_options = copy

    async def close(self) -> None:
        """Do nothing: the batch closes the shared connection pool when it ends."""

    async def request(self, cast_to: Any, options: Any, *, stream: bool = False, stream_cls: Any = None) -> Any:
        """Send one request under the trajectory's label; model calls are turns, with retries.

        Raises:
            TrajectoryClosed: the trajectory has ended.
            openai.OpenAIError: as the SDK does, once the attempts are used up.
        """
        trajectory = self._trajectory
        trajectory.check_open()
        given = options.headers if isinstance(options.headers, Mapping) else {}
        raw = given.get(RAW_RESPONSE_HEADER)
        options.headers = {**given, ROUTING_KEY_HEADER: trajectory.label}
        path = str(options.url)
        if path not in TURN_ENDPOINTS:
            return await super().request(cast_to, options, stream=stream, stream_cls=stream_cls)

        hide_usage = stream and raw != "stream" and path in USAGE_ENDPOINTS and _ask_for_usage(options)
        attempts = 1 + options.get_max_retries(self.max_retries)
        options.max_retries = 0
        if options.files is not None or getattr(options, "content", None) is not None:
            attempts = 1  # a body that cannot be sent twice
        turn = trajectory.begin_turn(path, stream)
        send = super().request

        async def send_once() -> Any:
            worker = turn.route()
            if self._placed:
                options.url = worker + path
            return await send(cast_to, options, stream=stream, stream_cls=stream_cls)

        try:
            reply = await call_with_retries(send_once, turn, attempts)
            return _observe(reply, turn, raw, hide_usage)
        except BaseException as error:
            turn.finish(error)
            raise


def _ask_for_usage(options: Any) -> bool:
    """Request the usage chunk of a stream; True when the caller did not, so that it must be hidden."""
    body = options.json_data
    if not isinstance(body, dict):
        return False
    asked = body.get("stream_options")
    if isinstance(asked, Mapping) and asked.get("include_usage") is not None:
        return False
    options.json_data = {**body, "stream_options": {**(asked or {}), "include_usage": True}}
    return True


def _observe(reply: Any, turn: Turn, raw: str | None, hide_usage: bool) -> Any:
    """End the turn when its body has been read: now for a plain reply, later for whatever streams."""
    if isinstance(reply, AsyncStream):
        stream: AsyncStream[Any] = TurnStream(reply, turn, hide_usage=hide_usage)
        turn.keep_open(stream.close)
        return stream
    if raw is None:
        turn.read_usage(getattr(reply, "usage", None))
        turn.finish()
        return reply
    _observe_raw(reply, turn, raw, hide_usage)
    return reply


def _observe_raw(reply: Any, turn: Turn, raw: str, hide_usage: bool) -> None:
    """Follow a raw response: its parsed stream, or the moment when its body is closed."""
    http_response = reply.http_response
    if raw == "true" and not turn.streamed:  # read already
        turn.read_usage(_usage_in_body(http_response))
        turn.finish()
        return
    parse, aclose = reply.parse, http_response.aclose

    def parse_and_observe(*args: Any, **kwargs: Any) -> Any:
        parsed = parse(*args, **kwargs)
        return TurnStream(parsed, turn, hide_usage=hide_usage) if isinstance(parsed, AsyncStream) else parsed

    async def close_and_finish() -> None:
        try:
            await aclose()
        finally:
            if not turn.streamed:
                turn.read_usage(_usage_in_body(http_response))
            turn.finish()

    if raw == "true":
        reply.parse = parse_and_observe
    http_response.aclose = close_and_finish
    turn.keep_open(close_and_finish)


def _usage_in_body(http_response: Any) -> Any:
    """Read usage from a JSON body that has been read; None where there is none."""
    try:
        body = http_response.json()
    except Exception:  # not read, not JSON, not UTF-8: then there is no usage to report
        return None
    return body.get("usage") if isinstance(body, dict) else None
