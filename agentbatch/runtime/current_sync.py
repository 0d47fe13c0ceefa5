"""`environment()` and `act()` of `current.py` for plain functions in threads that are not handed their trajectory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from inspect import isawaitable
from typing import Any

import anyio

from agentbatch.runtime import current
from agentbatch.runtime.current import current_trajectory
from agentbatch.runtime.tool import is_async


def environment_sync(resource: str = "default") -> AbstractContextManager[Any]:
    """Gate a `with` block as a job of the current trajectory; outside any, it passes through, counted by the batch.

    The trajectory is current in the function that `map_sync` or `SyncAgentBatch.map` runs, in the block of
    `SyncAgentBatch.trajectory`, and in what `traj.bind` returns, but not in threads that a harness starts itself.

    Raises:
        WrongThread: on entry, on the event loop's thread; use `environment` there.
    """
    found = current_trajectory()
    if found is not None:
        return found.sync.environment(resource)
    _count_pass_through()
    return nullcontext()


def act_sync(tool: Callable[..., Any], *args: Any, resource: str = "default") -> Any:
    """Run `tool(*args)` as a job of the current trajectory, or ungated outside any (see `environment_sync`).
    """
    found = current_trajectory()
    if found is not None:
        return found.sync.act(tool, *args, resource=resource)
    _count_pass_through()
    if is_async(tool):
        return anyio.run(tool, *args)  # an event loop for this one call
    result = tool(*args)
    return anyio.run(_finish, result) if isawaitable(result) else result


async def _finish(awaitable: Any) -> Any:
    return await awaitable


def _count_pass_through() -> None:
    around = current.batch.get()
    if around is not None and around in current.open_batches:
        around.crossing.post(_count, around)
        return
    for batch in tuple(current.open_batches):  # this thread carries no context: nobody can say whose call it was
        batch.crossing.post(_count, batch)
        batch.crossing.post(_announce, batch)


def _count(batch: Any) -> None:
    batch.account.passed_through += 1


def _announce(batch: Any) -> None:
    batch.hub.notice(
        "no-trajectory-in-thread",
        "environment_sync() or act_sync() was called in a thread that knows no trajectory, so the call was not gated: "
        "hand the thread its trajectory and use traj.environment(), or start it with traj.bind(function)",
        once=True,
    )
