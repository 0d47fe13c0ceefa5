"""What a batch does beside its trajectories: one task group, opened and closed with the batch.

Lives here: health checks of workers, the event loop's lag, tools that run on after they were told to stop. A task in it
must not raise: it would end the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVarTuple

import anyio
from anyio.abc import TaskGroup

from agentbatch.errors import BatchClosed
from agentbatch.runtime.transport import runs_on_asyncio

Ts = TypeVarTuple("Ts")


class Background:
    """A task group that is cancelled when it is closed, whatever error leaves the block around it."""

    def __init__(self) -> None:
        self._group: TaskGroup | None = None
        self._host: asyncio.Task[None] | None = None
        self._lingering = 0
        self._settled: anyio.Event | None = None

    async def open(self) -> None:
        """Start.

        On asyncio the group lives in a task of its own, so that a batch may be entered and left in two tasks, as
        pytest-asyncio's fixtures do; on trio, in the calling task, which has to close it.
        """
        if not runs_on_asyncio():
            group = anyio.create_task_group()
            await group.__aenter__()
            self._group = group
            return
        opened = asyncio.Event()
        self._host = asyncio.create_task(self._live(opened), name="agentbatch background")
        try:
            await opened.wait()
        except BaseException:
            self._host.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([self._host])
            raise

    async def _live(self, opened: asyncio.Event) -> None:
        async with anyio.create_task_group() as group:
            self._group = group
            opened.set()
            await anyio.sleep_forever()

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
            leaving: what the batch's block raised. The group is not told of it, since it would wrap it; and a
                cancellation from outside may come up here a second time, and must not take its place.
        """
        group, self._group = self._group, None
        if group is None:
            return
        group.cancel_scope.cancel()
        if self._host is not None:
            with anyio.CancelScope(shield=True):  # the wait is for cancelled tasks only
                await self._host
            return
        group.cancel_scope.shield = True
        try:
            await group.__aexit__(None, None, None)
        except anyio.get_cancelled_exc_class():
            if leaving is None:
                raise

    def __repr__(self) -> str:
        return f"<Background {'closed' if self._group is None else 'open'} lingering={self._lingering}>"
