"""A streamed reply that ends its turn: at exhaustion, at close, or at the trajectory's end."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any, TypeVar

from openai import AsyncStream

from agentbatch.runtime.turn import Turn

T = TypeVar("T")


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
            try:
                chunk = await self._inner.__anext__()
            except StopAsyncIteration:
                turn.finish()
                raise
            except BaseException as error:
                turn.finish(error)
                raise
            turn.first_byte()
            usage = _usage_of(chunk)
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
                await self._inner._iterator.aclose()  # type: ignore[attr-defined]
        finally:
            self._turn.finish()

    def __getattr__(self, name: str) -> Any:
        if name == "_inner":  # not set yet: no recursion
            raise AttributeError(name)
        return getattr(self._inner, name)


def _usage_of(chunk: Any) -> Any:
    """Find usage on a chat or completions chunk, or on the last event of the responses API."""
    usage = getattr(chunk, "usage", None)
    if usage is None:
        response = getattr(chunk, "response", None)
        usage = getattr(response, "usage", None)
    return usage
