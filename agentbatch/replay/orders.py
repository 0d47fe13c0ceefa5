"""Replays one workload in several submission orders, since the effect of an ordering depends on them (spec §1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from agentbatch.events import Event
from agentbatch.replay.options import ReplayOptions
from agentbatch.replay.runner import ReplayResult, replay
from agentbatch.trace.workload import TraceTrajectory

HookFor = Callable[[int], Callable[[Event], None] | None]


def record_path(path: str | None, order: int) -> str | None:
    """Return where order number `order` is recorded: the first under the name given, others with `.1`, `.2`, … in it."""
    if path is None or order == 0:
        return path
    given = Path(path)
    return str(given.with_name(f"{given.stem}.{order}{given.suffix}"))


async def replay_orders(
    workload: Sequence[TraceTrajectory], options: ReplayOptions, orders: int, hook_for: HookFor = lambda order: None
) -> list[ReplayResult]:
    """Replay `workload` in submission orders 0 to `orders` - 1, one after the other.

    Args:
        workload: the trajectories, capped and limited already.
        options: what to replay against, and how; `order` and `record` are set for each.
        orders: how many, at least 1.
        hook_for: gives the event hook of each order, for a live display.
    """
    results = []
    for order in range(orders):
        one = replace(options, order=order, record=record_path(options.record, order))
        results.append(await replay(workload, one, on_event=hook_for(order)))
    return results
