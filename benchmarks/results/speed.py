"""How long the simulator itself takes: process seconds, one simulation at a time, in this process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from agentbatch.simulate import simulate
from agentbatch.simulate.pool import available_cores
from benchmarks.results.ask import Ask, Record, carry_out
from benchmarks.results.layout import chosen, table
from benchmarks.results.swe import RATIO

LIMITS = {("fcfs", 98): "≤ 8", ("routing-prefix", 98): "≤ 8", ("lpm", 289): "≤ 20", ("dfs-weight", 289): "≤ 20"}


def measured(quick: bool, told: Callable[[str], None]) -> list[dict[str, Any]]:
    """Return the records of these tables."""
    cells = [(policy, cs, 289) for cs in (98, 289) for policy in ("fcfs", "lpm", "dfs-weight", "routing-prefix")]
    cells += [("fcfs", 98, 145), ("fcfs", 98, 578), ("routing-prefix", 98, 145), ("routing-prefix", 98, 578)]
    return [*(_cell(*cell, quick, told) for cell in (cells[:2] if quick else cells)), _grid(quick, told)]


def _cell(policy: str, cs: int, count: int, quick: bool, told: Callable[[str], None]) -> dict[str, Any]:
    ask = Ask(table="speed", workload="swe", trajectories=4 if quick else count, cs=cs, ratio=RATIO,
              schedule_policy=policy)  # fmt: skip
    workload, options = ask.trajectories_of(), ask.options()
    began_s = time.process_time()
    result = simulate(workload, options)
    process_s = time.process_time() - began_s
    told(f"speed: {policy}, CS {cs}, {count} trajectories: {process_s:.1f} s")
    return {"table": "speed", "schedule_policy": policy, "cs": cs, "trajectories": len(workload),
            "requests": result.to_dict()["turns"], "process_s": round(process_s, 1)}  # fmt: skip


def _grid(quick: bool, told: Callable[[str], None]) -> dict[str, Any]:
    asks = [
        Ask(table="grid", workload="swe", trajectories=4 if quick else None, cs=cs, ratio=ratio,
            schedule_policy=policy)
        for cs in ((2, 4) if quick else (49, 98, 147, 196, 289))
        for ratio in (RATIO, 2 * RATIO)
        for policy in ("fcfs", "lpm", "routing-prefix")
    ]  # fmt: skip
    began_s, busy_s = time.perf_counter(), os.times()
    carry_out(asks, told, jobs=1 if quick else None)
    after_s = os.times()
    processes = sum(getattr(after_s, name) - getattr(busy_s, name)
                    for name in ("user", "system", "children_user", "children_system"))  # fmt: skip
    return {"table": "grid", "cells": len(asks), "cores": available_cores(), "process_s": round(processes),
            "wall_s": round(time.perf_counter() - began_s)}  # fmt: skip


def render(records: Sequence[Record]) -> dict[str, str]:
    """Return the blocks of the page."""
    rows = [
        [one["schedule_policy"], str(one["cs"]), str(one["trajectories"]), f"{one['requests']:,}",
         f"{one['process_s']:.1f}", LIMITS.get((one["schedule_policy"], one["cs"]), "")
         if one["trajectories"] == 289 else ""]
        for one in chosen(records, table="speed")
    ]  # fmt: skip
    rows += [
        [f"grid of {one['cells']} simulations, {one['cores']} core(s)", "", "", "", f"{one['process_s']}",
         f"≤ 240 on two; wall clock here: {one['wall_s']}"]
        for one in chosen(records, table="grid")
    ]  # fmt: skip
    return {"speed": table(["policy", "CS", "trajectories", "requests", "process, s", "wanted"], rows)}
