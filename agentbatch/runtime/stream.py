"""Replies that stream: each ends its turn once, at exhaustion, at an error, at close, or with its trajectory."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import anyio
from openai import AsyncStream

from agentbatch.runtime.turn import Turn

T = TypeVar("T")

CLOSE_WITHIN_S = 5.0
"""How long closing an abandoned stream may hold up whoever goes on, wall seconds."""


async def close_within(close: Callable[[], Awaitable[None]]) -> None:
    """Close something abandoned: even when cancelled, but never for long; its errors concern nobody any more."""
    with anyio.move_on_after(CLOSE_WITHIN_S, shield=True), contextlib.suppress(Exception):
        await close()


class TurnStream(AsyncStream[T]):
    """The SDK's stream, observed: first byte, usage, end. Chunks pass as they came.

    Args:
        inner: the stream that the SDK built.
        turn: the turn it belongs to.
        hide_usage: drop the chunk that only carries usage, because the caller did not ask for one.
    """

    def __init__(self, inner: AsyncStream[T], turn: Turn, *, hide_usage: bool) -> None:
        # not super().__init__: that would decode the response a second time
        self._inner = inner
        self._turn = turn
        self._hide_usage = hide_usage
        self.response = inner.response

    async def __anext__(self) -> T:
        turn = self._turn
        while True:
            turn.reading = True
            try:
                chunk = await turn.within_limit(self._inner.__anext__)
            except StopAsyncIteration:
                turn.finish()
                raise
            except BaseException as error:
                turn.finish(error)
                # openai 2 leaves it open, and the server generates on for nobody
                await close_within(self._inner.response.aclose)
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

    def __aiter__(self) -> AsyncIterator[T]:  # same protocol as the SDK's, no second generator
        return self

    async def close(self) -> None:
        """Close the response, release the connection and end the turn."""
        try:
            await self._inner.close()
            # a generator left half-way would be closed by the garbage collector, late and with a warning on trio
            with contextlib.suppress(RuntimeError):  # another task is reading from it right now
                await self._inner._iterator.aclose()  # type: ignore[attr-defined]  # a generator
        finally:
            self._turn.finish()

    def __getattr__(self, name: str) -> Any:
        if name == "_inner":  # not set yet: no recursion
            raise AttributeError(name)
        return getattr(self._inner, name)


def finish_on_close(response: Any, turn: Turn) -> Callable[[], Awaitable[None]]:
    """End `turn` when `response` is closed, which the SDK's stream helpers do past the stream; return that close."""
    aclose = response.aclose

    async def close_and_finish() -> None:
        try:
            await aclose()
        finally:
            if not turn.reading:
                turn.finish()

    response.aclose = close_and_finish
    return close_and_finish


def observe_body(response: Any, turn: Turn) -> None:
    """End `turn` with the body of a raw response that its caller reads: its first byte, its usage, its error."""
    aiter_raw, aread = response.aiter_raw, response.aread

    async def iterate(*args: Any, **kwargs: Any) -> AsyncIterator[bytes]:
        within = turn.reading  # `read` below or a TurnStream reads through us, and ends the turn itself
        parts = aiter_raw(*args, **kwargs)
        while True:
            turn.reading = True
            try:
                part = await turn.within_limit(partial(anext, parts))
            except StopAsyncIteration:
                break
            except BaseException as error:
                turn.finish(error)
                raise
            finally:
                turn.reading = within
            if turn.streamed:
                turn.first_byte()
            yield part
        if not within:
            turn.finish()

    async def read() -> bytes:
        turn.reading = True  # reading to the end closes the response before its content is there
        try:
            content: bytes = await aread()
        finally:
            turn.reading = False
        turn.read_usage(usage_in_body(response))
        turn.finish()
        return content

    response.aiter_raw, response.aread = iterate, read


def usage_in_body(response: Any) -> Any:
    """Read usage from a JSON body that has been read; None where there is none."""
    try:
        body = response.json()
    except Exception:  # not read, not JSON, not UTF-8: then there is no usage to report
        return None
    return body.get("usage") if isinstance(body, dict) else None


def usage_of(chunk: Any) -> Any:
    """Find usage on a chat or completions chunk, or on the last event of the responses API."""
    usage = getattr(chunk, "usage", None)
    if usage is None:
        response = getattr(chunk, "response", None)
        usage = getattr(response, "usage", None)
    return usage
