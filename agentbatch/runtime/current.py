"""Which trajectory, and which batch, the running task works for; everything passes through where there is none."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from agentbatch.runtime.tool import run_tool

if TYPE_CHECKING:
    from agentbatch.runtime.core import BatchCore
    from agentbatch.runtime.trajectory import Trajectory

trajectory: ContextVar[Trajectory | None] = ContextVar("agentbatch_trajectory", default=None)
batch: ContextVar[BatchCore | None] = ContextVar("agentbatch_batch", default=None)
open_batches: set[BatchCore] = set()
"""For threads that carry no context: a call that nobody gated must be counted all the same."""


def current_trajectory() -> Trajectory | None:
    """Return the trajectory this task works for, or None outside any (an evaluator, a clean-up, after its end)."""
    found = trajectory.get()
    return found if found is not None and found.is_open else None


def environment(resource: str = "default") -> AbstractAsyncContextManager[Any]:
    """Gate a block as a job of the current trajectory; outside any, the block passes through, counted by the batch.

    For tools that are not handed their trajectory. An evaluator that runs tools again after the loop is not gated.
    """
    found = current_trajectory()
    if found is not None:
        return found.environment(resource)
    _count_pass_through()
    return nullcontext()


async def act(tool: Callable[..., Any], *args: Any, resource: str = "default") -> Any:
    """Run `tool(*args)` as a job of the current trajectory, or ungated outside any (see `environment`)."""
    found = current_trajectory()
    if found is not None:
        return await found.act(tool, *args, resource=resource)
    _count_pass_through()
    return await run_tool(tool, args)


def _count_pass_through() -> None:
    around = batch.get()
    if around is not None:
        around.account.passed_through += 1
