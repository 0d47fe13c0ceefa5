"""The end of what ran beside a batch's trajectories, such as asking dead workers for their health."""

from __future__ import annotations

import anyio
from anyio.abc import TaskGroup


async def close_background(group: TaskGroup, leaving: BaseException | None) -> None:
    """Cancel the tasks of `group`, entered by this task, and wait for their end; no task in it may raise.

    Args:
        group: told nothing of what ends its block, which so passes on as it is, in no exception group.
        leaving: what the block raised. On asyncio a cancellation from outside comes up here a second time, and must not
            take its place.
    """
    group.cancel_scope.shield = True  # the wait is for cancelled tasks only
    group.cancel_scope.cancel()
    try:
        await group.__aexit__(None, None, None)
    except anyio.get_cancelled_exc_class():
        if leaving is None:
            raise
