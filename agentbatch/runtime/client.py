"""The OpenAI client of one trajectory: every request labelled, every model call a counted turn.

All resources of the SDK (chat, completions, responses; plain, raw, streaming) meet in `AsyncOpenAI.request`, which is
public API; that one method is overridden and nothing else is patched. Works with openai 2.8 to 3.x.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from openai import AsyncOpenAI, AsyncStream

from agentbatch.runtime.request import TURN_ENDPOINTS, USAGE_ENDPOINTS, LabelHeaders, ask_for_usage, take_attempts
from agentbatch.runtime.retry import call_with_retries
from agentbatch.runtime.stream import TurnStream, finish_on_close, observe_body, usage_in_body
from agentbatch.runtime.turn import Turn

if TYPE_CHECKING:
    from agentbatch.runtime.trajectory import Trajectory


class TrajectoryClient(AsyncOpenAI):
    """An `AsyncOpenAI` that labels, times and counts; `with_options()` copies stay with the trajectory.

    `close()` and `async with` are harmless: the connection pool belongs to the batch.
    """

    def __init__(self, *, trajectory: Trajectory, home: str | None = None, **options: Any) -> None:
        self._trajectory = trajectory
        self._label = LabelHeaders(trajectory)
        super().__init__(**self._label.taken_from(options))
        self._home = str(self.base_url) if home is None else home
        # a copy that the caller pointed at another base_url is labelled and counted, but on none of our workers
        self._elsewhere = str(self.base_url) != self._home
        self._placed = not self._elsewhere and len(trajectory.workers.urls) > 1

    def copy(self, *, _extra_kwargs: Mapping[str, Any] = {}, **options: Any) -> TrajectoryClient:
        """Copy with other options, as in the SDK; the copy keeps the label."""
        extra = {"trajectory": self._trajectory, "home": self._home, **_extra_kwargs}
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
        raw = self._label.put_on(options)
        path = str(options.url)
        if path not in TURN_ENDPOINTS:
            return await super().request(cast_to, options, stream=stream, stream_cls=stream_cls)

        hide_usage = stream and raw != "stream" and path in USAGE_ENDPOINTS and ask_for_usage(options)
        attempts, resendable = take_attempts(options, self.max_retries)
        policy = trajectory.batch.options.retries
        turn = trajectory.begin_turn(path, stream)
        turn.resendable = resendable
        send = super().request

        async def send_once() -> Any:
            turn.attempts += 1
            if not self._elsewhere:
                worker = turn.route()
                if self._placed:
                    options.url = worker + path
            return await send(cast_to, options, stream=stream, stream_cls=stream_cls)

        try:
            reply = await turn.within_limit(partial(call_with_retries, send_once, turn, policy, attempts))
            return _observe(reply, turn, raw, hide_usage)
        except BaseException as error:
            turn.finish(error)
            raise


def _observe(reply: Any, turn: Turn, raw: str | None, hide_usage: bool) -> Any:
    """End the turn when its body has been read: now for a plain reply, later for whatever streams."""
    if isinstance(reply, AsyncStream):
        stream: AsyncStream[Any] = TurnStream(reply, turn, hide_usage=hide_usage)
        finish_on_close(reply.response, turn)
        turn.keep_open(stream.close)
        return stream
    if raw is None:
        turn.read_usage(getattr(reply, "usage", None))
        turn.finish()
    elif raw == "true" and not turn.streamed:  # read already
        turn.read_usage(usage_in_body(reply.http_response))
        turn.finish()
    else:
        turn.keep_open(finish_on_close(reply.http_response, turn))
        observe_body(reply.http_response, turn)
        _observe_parsed(reply, turn, hide_usage)
    return reply


def _observe_parsed(reply: Any, turn: Turn, hide_usage: bool) -> None:
    """Follow the stream that a raw response parses to."""
    parse = reply.parse

    def observed(parsed: Any) -> Any:
        return TurnStream(parsed, turn, hide_usage=hide_usage) if isinstance(parsed, AsyncStream) else parsed

    async def parse_later(*args: Any, **kwargs: Any) -> Any:
        return observed(await parse(*args, **kwargs))

    def parse_now(*args: Any, **kwargs: Any) -> Any:
        return observed(parse(*args, **kwargs))

    reply.parse = parse_later if iscoroutinefunction(parse) else parse_now
