"""The streams of `sync_client.py`: as in `stream.py`, each ends its turn once, whichever thread reads or closes it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from openai import Stream

from agentbatch.runtime.stream import usage_in_body, usage_of
from agentbatch.runtime.sync_turn import ThreadTurn

T = TypeVar("T")


class ThreadStream(Stream[T]):
    """The SDK's stream, observed: first byte, usage, end. Chunks pass as they came.

    Args:
        inner: the stream that the SDK built.
        turn: the turn it belongs to.
        hide_usage: drop the chunk that only carries usage, because the caller did not ask for one.
    """

    def __init__(self, inner: Stream[T], turn: ThreadTurn, *, hide_usage: bool) -> None:
        # not super().__init__: that would decode the response a second time
        self._inner = inner
        self._turn = turn
        self._hide_usage = hide_usage
        self.response = inner.response

    def __next__(self) -> T:
        turn = self._turn
        while True:
            turn.reading = True
            try:
                stop = turn.told_to_stop()
                if stop is not None:
                    raise stop
                chunk = self._inner.__next__()
            except StopIteration:
                turn.finish()
                raise
            except BaseException as error:
                reason = turn.reason(error)
                turn.finish(reason or error)
                # openai 2 leaves it open, and the server generates on for nobody
                with contextlib.suppress(Exception):
                    self._inner.response.close()
                if reason is not None:
                    raise reason from error
                raise
            finally:
                turn.reading = False
            turn.first_byte()
            usage = usage_of(chunk)
            if usage is not None:
                turn.read_usage(usage)
                if self._hide_usage and not getattr(chunk, "choices", True):
                    continue
            return chunk

    def __iter__(self) -> Iterator[T]:  # same protocol as the SDK's, no second generator
        return self

    def close(self) -> None:
        """Close the response, release the connection and end the turn."""
        try:
            self._inner.close()
        finally:
            self._turn.finish()

    def __getattr__(self, name: str) -> Any:
        if name == "_inner":  # not set yet: no recursion
            raise AttributeError(name)
        return getattr(self._inner, name)


def finish_on_close(response: Any, turn: ThreadTurn) -> None:
    """End `turn` when `response` is closed, which the SDK's stream helpers do past the stream."""
    close = response.close

    def close_and_finish() -> None:
        try:
            close()
        finally:
            if not turn.reading:
                turn.finish()

    response.close = close_and_finish


def abandon(response: Any, turn: ThreadTurn) -> Callable[[], None]:
    """Return how to close a response from another thread than the one that may be reading it."""

    def close() -> None:
        connection = response.extensions.get("network_stream")
        peer = None if connection is None else connection.get_extra_info("socket")
        if turn.reading and peer is not None:
            # closing would not wake the reader; at the end of the data it closes by itself
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
        else:
            response.close()

    return close


def observe_body(response: Any, turn: ThreadTurn) -> None:
    """End `turn` with the body of a raw response that its caller reads: its first byte, its usage, its error."""
    iter_raw, read = response.iter_raw, response.read

    def iterate(*args: Any, **kwargs: Any) -> Iterator[bytes]:
        within = turn.reading  # `read_all` below or a ThreadStream reads through us, and ends the turn itself
        parts = iter_raw(*args, **kwargs)
        while True:
            turn.reading = True
            try:
                part = next(parts)
            except StopIteration:
                break
            except BaseException as error:
                reason = turn.reason(error)
                turn.finish(reason or error)
                if reason is not None:
                    raise reason from error
                raise
            finally:
                turn.reading = within
            if turn.streamed:
                turn.first_byte()
            yield part
        if not within:
            turn.finish()

    def read_all() -> bytes:
        turn.reading = True  # reading to the end closes the response before its content is there
        try:
            content: bytes = read()
        finally:
            turn.reading = False
        turn.read_usage(usage_in_body(response))
        turn.finish()
        return content

    response.iter_raw, response.read = iterate, read_all
