"""Runs a synchronous step loop in a worker thread of its own, under the admission slot of its trajectory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import anyio.to_thread

from agentbatch.errors import TrajectoryCancelled

if TYPE_CHECKING:
    from agentbatch.runtime.sync_trajectory import SyncTrajectory
    from agentbatch.runtime.trajectory import Trajectory


async def solve_in_thread(solve: Callable[[SyncTrajectory, Any], Any], trajectory: Trajectory, task: Any) -> Any:
    """Return what `solve(trajectory.sync, task)` returns; wait for its thread also when cancelled.

    Raises:
        Exception: what `solve` raised; TrajectoryCancelled where that was no Exception.
    """
    sync = trajectory.sync
    ended = anyio.Event()
    values: list[Any] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            values.append(solve(sync, task))
        except BaseException as error:
            errors.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(sync.until, ended)  # hears of a cancellation, which the wait for a thread does not
        try:
            # a limiter of its own: admission is the only limit (anyio's default is 40 threads)
            await anyio.to_thread.run_sync(work, limiter=anyio.CapacityLimiter(1))
        finally:
            ended.set()
    await anyio.lowlevel.checkpoint_if_cancelled()
    if errors:
        error = errors.pop()
        if isinstance(error, Exception):
            raise error
        # sys.exit() ends the thread that calls it; raised on the loop, it would end that
        raise TrajectoryCancelled(f"its thread was ended by {error!r}") from error
    return values.pop()
