"""Runs a synchronous step loop in a worker thread of its own, under the admission slot of its trajectory.

A thread cannot be stopped. One that runs on although its trajectory was told to stop is an overrun, as a tool's is
(`tool.py`): the result is there at once, the slot comes back when the thread has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import anyio.to_thread

from agentbatch.errors import TrajectoryCancelled

if TYPE_CHECKING:
    from agentbatch.runtime.sync_trajectory import SyncTrajectory
    from agentbatch.runtime.trajectory import Trajectory


async def solve_in_thread(solve: Callable[[SyncTrajectory, Any], Any], trajectory: Trajectory, task: Any) -> Any:
    """Return what `solve(trajectory.sync, task)` returns; when cancelled, wait for its thread no more than a moment.

    Raises:
        Exception: what `solve` raised; TrajectoryCancelled where that was no Exception.
    """
    sync = trajectory.sync
    ended = anyio.Event()
    values: list[Any] = []
    errors: list[BaseException] = []

    begun = Lock()  # taken by the thread, or by us where it was cancelled before it began: then it never does

    def work() -> None:
        if not begun.acquire(blocking=False):
            return
        try:
            values.append(solve(sync, task))
        except BaseException as error:
            errors.append(error)
        finally:
            sync.crossing.post(ended.set)

    try:
        # a limiter of its own: admission is the only limit (anyio's default is 40 threads)
        await anyio.to_thread.run_sync(work, limiter=anyio.CapacityLimiter(1), abandon_on_cancel=True)
        await anyio.lowlevel.checkpoint_if_cancelled()
    except anyio.get_cancelled_exc_class():
        if not begun.acquire(blocking=False) and not await sync.wind_down(ended):
            trajectory.outlived_by = ended
        raise
    if errors:
        error = errors.pop()
        if isinstance(error, Exception):
            raise error
        # sys.exit() ends the thread that calls it; raised on the loop, it would end that
        raise TrajectoryCancelled(f"its thread was ended by {error!r}") from error
    return values.pop()
