"""Replays one workload in several submission orders, since the effect of an ordering depends on them (spec §1)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from agentbatch.errors import StartUpError
from agentbatch.events import Event
from agentbatch.replay.options import ReplayOptions
from agentbatch.replay.runner import ReplayResult, replay
from agentbatch.trace.workload import TraceTrajectory

HookFor = Callable[[int], Callable[[Event], None] | None]


def record_path(path: str | None, order: int) -> str | None:
    """Return where an order is recorded: the first under the name given, others with `.1`, `.2`, … in it."""
    if path is None or order == 0:
        return path
    given = Path(path)
    return str(given.with_name(f"{given.stem}.{order}{given.suffix}"))


def check_records(path: str | None, orders: int) -> None:
    """Refuse a record that could not be written, before anything runs.

    Raises:
        StartUpError: one of its files exists, or its folder does not or cannot be written to.
    """
    if path is None:
        return
    folder = Path(path).parent
    if not folder.is_dir():
        raise StartUpError(f"cannot record to {path}: there is no folder {folder}; make it first")
    for order in range(orders):
        one = Path(record_path(path, order) or path)
        if one.is_dir():
            raise StartUpError(f"cannot record to {one}: it is a folder; name a file in it")
        if one.exists() or one.is_symlink():
            raise StartUpError(
                f"cannot record to {one}: the file exists, and a record is never overwritten; name another or remove it"
            )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StartUpError(f"cannot record to {path}: the folder {folder} cannot be written to")


async def replay_orders(
    workload: Sequence[TraceTrajectory],
    options: ReplayOptions,
    orders: int,
    hook_for: HookFor = lambda order: None,
    on_result: Callable[[ReplayResult], None] = lambda result: None,
) -> list[ReplayResult]:
    """Replay `workload` in submission orders 0 to `orders` - 1, one after the other.

    Args:
        workload: the trajectories, capped and limited already.
        options: what to replay against, and how; `order` and `record` are set for each.
        orders: how many, at least 1.
        hook_for: gives the event hook of each order, for a live display.
        on_result: called with each result as it comes, so that none is lost when a later order is interrupted.
    """
    results = []
    for order in range(orders):
        one = replace(options, order=order, record=record_path(options.record, order))
        result = await replay(workload, one, on_event=hook_for(order))
        on_result(result)
        results.append(result)
    return results
