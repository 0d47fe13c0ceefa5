"""The synchronous OpenAI client of one trajectory: `client.py` for threads, with the same labels, turns and retries.

HTTP runs in the calling thread on one connection pool that the batch's threads share; policy state stays on the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any

from openai import OpenAI, Stream

from agentbatch.runtime.crossed import batch_gone
from agentbatch.runtime.request import (
    TURN_ENDPOINTS,
    USAGE_ENDPOINTS,
    LabelHeaders,
    ask_for_usage,
    take_attempts,
)
from agentbatch.runtime.stream import usage_in_body
from agentbatch.runtime.sync_stream import ThreadStream, abandon, finish_on_close, observe_body
from agentbatch.runtime.sync_turn import ThreadTurn, call_with_retries
from agentbatch.runtime.transport import build_sync_http_client

if TYPE_CHECKING:
    from agentbatch.runtime.sync_trajectory import SyncTrajectory


class SyncPool:
    """The connection pool under every synchronous client of a batch; made when the first of them asks.

    Args:
        cs: admission limit, sizes the pool of idle connections. timeout_s: see `build_http_client`.
    """

    def __init__(self, cs: int, timeout_s: float) -> None:
        self._cs = cs
        self._timeout_s = timeout_s
        self._lock = Lock()
        self._client: Any = None
        self._closed = False

    def get(self) -> Any:
        """Return the HTTP client.

        Raises:
            BatchClosed: the batch has ended.
        """
        with self._lock:
            if self._closed:
                raise batch_gone()
            if self._client is None:
                self._client = build_sync_http_client(self._cs, self._timeout_s)
            return self._client

    def close(self) -> None:
        """Close every connection."""
        with self._lock:
            self._closed = True
            if self._client is not None:
                self._client.close()


class SyncTrajectoryClient(OpenAI):
    """An `OpenAI` that labels, times and counts; `with_options()` copies stay with the trajectory.

    `close()` and `with` are harmless: the connection pool belongs to the batch.
    """

    def __init__(self, *, trajectory: SyncTrajectory, home: str | None = None, **options: Any) -> None:
        self._trajectory = trajectory
        self._label = LabelHeaders(trajectory.trajectory)
        super().__init__(**self._label.taken_from(options))
        self._home = str(self.base_url) if home is None else home
        # a copy that the caller pointed at another base_url is labelled and counted, but on none of our workers
        self._elsewhere = str(self.base_url) != self._home
        self._placed = not self._elsewhere and len(trajectory.trajectory.workers.urls) > 1

    def copy(self, *, _extra_kwargs: Mapping[str, Any] = {}, **options: Any) -> SyncTrajectoryClient:
        """Copy with other options, as in the SDK; the copy keeps the label."""
        extra = {"trajectory": self._trajectory, "home": self._home, **_extra_kwargs}
        return super().copy(_extra_kwargs=extra, **options)

    with_options = copy

    def close(self) -> None:
        """Do nothing: the batch closes the shared connection pool when it ends."""

    def request(self, cast_to: Any, options: Any, *, stream: bool = False, stream_cls: Any = None) -> Any:
        """Send one request under the trajectory's label; model calls are turns, with retries.

        Raises:
            TrajectoryClosed, TrajectoryCancelled, TrajectoryTimeout, BatchClosed: the trajectory has ended.
            TurnTimeout: the turn took longer than `turn_timeout_s`.
            WrongThread: called on the event loop's thread.
            openai.OpenAIError: as the SDK does, once the attempts are used up.
        """
        trajectory = self._trajectory
        trajectory.check_open()
        raw = self._label.put_on(options)
        path = str(options.url)
        if path not in TURN_ENDPOINTS:
            return super().request(cast_to, options, stream=stream, stream_cls=stream_cls)

        hide_usage = stream and raw != "stream" and path in USAGE_ENDPOINTS and ask_for_usage(options)
        attempts, resendable = take_attempts(options, self.max_retries)
        limits = trajectory.trajectory.batch.options
        turn = ThreadTurn(trajectory, path, stream, resendable)
        send: Callable[..., Any] = super().request

        def send_once() -> Any:
            turn.bound(options, limits.timeout_s)
            worker = turn.attempt(routed=not self._elsewhere, placed=self._placed)
            if self._placed:
                options.url = worker + path
            return send(cast_to, options, stream=stream, stream_cls=stream_cls)

        try:
            reply = call_with_retries(send_once, turn, limits.retries, attempts)
            return _observe(reply, turn, raw, hide_usage)
        except BaseException as error:
            turn.finish(error)
            raise


def _observe(reply: Any, turn: ThreadTurn, raw: str | None, hide_usage: bool) -> Any:
    """End the turn when its body has been read: now for a plain reply, later for whatever streams."""
    if isinstance(reply, Stream):
        stream: Stream[Any] = ThreadStream(reply, turn, hide_usage=hide_usage)
        finish_on_close(reply.response, turn)
        turn.keep_open(abandon(reply.response, turn))
        return stream
    if raw is None:
        turn.read_usage(getattr(reply, "usage", None))
        turn.finish()
    elif raw == "true" and not turn.streamed:  # read already
        turn.read_usage(usage_in_body(reply.http_response))
        turn.finish()
    else:
        finish_on_close(reply.http_response, turn)
        turn.keep_open(abandon(reply.http_response, turn))
        observe_body(reply.http_response, turn)
        _observe_parsed(reply, turn, hide_usage)
    return reply


def _observe_parsed(reply: Any, turn: ThreadTurn, hide_usage: bool) -> None:
    """Follow the stream that a raw response parses to."""
    parse = reply.parse

    def observed(*args: Any, **kwargs: Any) -> Any:
        parsed = parse(*args, **kwargs)
        return ThreadStream(parsed, turn, hide_usage=hide_usage) if isinstance(parsed, Stream) else parsed

    reply.parse = observed
