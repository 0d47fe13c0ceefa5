"""What a batch does beside its trajectories: one task group, opened and closed with the batch.

Lives here: health checks of workers, the event loop's lag, tools that run on after they were told to stop. A task in it
must not raise: it would cancel the block that the batch runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVarTuple

import anyio
from anyio.abc import TaskGroup

from agentbatch.errors import BatchClosed

Ts = TypeVarTuple("Ts")


class Background:
    """A task group that is cancelled when it is closed, whatever error leaves the block around it."""

    def __init__(self) -> None:
        self._group: TaskGroup | None = None
        self._lingering = 0
        self._settled: anyio.Event | None = None

    async def open(self) -> None:
        """Start; close it in the same task."""
        group = anyio.create_task_group()
        await group.__aenter__()
        self._group = group

    def start_soon(self, function: Callable[[*Ts], Coroutine[Any, Any, Any]], *args: *Ts, name: object = None) -> None:
        """Run an async function beside the batch, until it returns or the batch ends.

        Raises:
            BatchClosed: it has ended already, as for a job that was granted its slot after that.
        """
        if self._group is None:
            raise BatchClosed("the batch has ended: let every trajectory end before its batch does")
        self._group.start_soon(function, *args, name=name)

    async def linger(self, function: Callable[[], Awaitable[Any]]) -> None:
        """Await `function`, for which the batch waits a little when it ends."""
        self._lingering += 1
        try:
            await function()
        finally:
            self._lingering -= 1
            if not self._lingering and self._settled is not None:
                self._settled.set()

    @property
    def lingering(self) -> int:
        """Tools that still run."""
        return self._lingering

    async def settle(self, within_s: float) -> None:
        """Wait for what lingers, even when cancelled, but not for long (wall seconds)."""
        if self._lingering:
            self._settled = anyio.Event()
            with anyio.move_on_after(within_s, shield=True):
                await self._settled.wait()

    @property
    def running(self) -> bool:
        """Whether it has been opened and not closed."""
        return self._group is not None

    async def close(self, leaving: BaseException | None) -> None:
        """Cancel what still runs, and wait for it.

        Args:
            leaving: what the batch's block raised. The group is not told of it, since it would wrap it; and on asyncio
                a cancellation from outside comes up here a second time, and must not take its place.
        """
        group, self._group = self._group, None
        if group is None:
            return
        group.cancel_scope.shield = True  # the wait is for cancelled tasks only
        group.cancel_scope.cancel()
        try:
            await group.__aexit__(None, None, None)
        except anyio.get_cancelled_exc_class():
            if leaving is None:
                raise

    def __repr__(self) -> str:
        return f"<Background {'closed' if self._group is None else 'open'} lingering={self._lingering}>"
