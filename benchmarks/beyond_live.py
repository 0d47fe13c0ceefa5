"""The part of `beyond` that is measured: replays over HTTP against two emulated workers, each in the same orders."""

import sys
import time
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import anyio

from agentbatch.emulator import spawn
from agentbatch.replay.options import ReplayOptions
from agentbatch.replay.runner import ReplayResult, replay
from agentbatch.sim import DEFAULT_PRESET
from agentbatch.trace.profile import profile_of
from agentbatch.trace.workload import TraceTrajectory, read_workload
from benchmarks.beyond_ways import BASE, SAMPLE, WAYS, interval, shaped

TRAJECTORIES = 24
CS = 12
"""Half of them, so that the order of admission matters."""
ORDERS = 20
SPEEDUP = 200.0
LIVE = (BASE, "LF + depth", "LF + CAAS auto", "FIFO + slow-step", "FIFO + CAAS auto")


@dataclass(frozen=True)
class Played:
    """One replay: what is reported of it."""

    makespan_s: float
    lag_s: float
    wall_s: float


def run(quick: bool = False) -> dict:
    """Return the ratios to FIFO + CAAS over the orders, and how late the event loop was; `quick`: 8, two orders."""
    sessions = [one for one in read_workload(SAMPLE) if one.domain == "claude-code"]
    workload = shaped(sessions[: 8 if quick else TRAJECTORIES], user_cap_s=120.0, env_scale=1.0)
    orders = 2 if quick else ORDERS
    cells, every = [], []
    with spawn(workers=2, speedup=SPEEDUP, preset=DEFAULT_PRESET) as workers:
        _play(workload, tuple(workers.urls), BASE, 3, 0)  # the first calibrates and warms up
        for ce in (3, 5, 10):
            began_s = time.perf_counter()
            played: dict[str, list[Played]] = {way: [] for way in LIVE}
            for order in range(orders):
                for way in LIVE:
                    played[way].append(_play(workload, tuple(workers.urls), way, ce, order))
            every += [one for each in played.values() for one in each]
            base = [one.makespan_s for one in played[BASE]]
            ways = {
                way: {"ratio": list(interval([one.makespan_s / b for one, b in zip(each, base, strict=True)]))}
                for way, each in played.items()
            }
            cells.append({"ce": ce, "varies": "orders", "ways": ways})
            print(f"live, CE {ce}: {time.perf_counter() - began_s:.0f} s", file=sys.stderr)
    lag_s, makespan_s = fmean(one.lag_s for one in every), fmean(one.makespan_s for one in every)
    steps = fmean(len(one.turns) + sum(turn.env_s is not None for turn in one.turns) for one in workload)
    return {
        "trajectories": len(workload),
        "turns": sum(len(one.turns) for one in workload),
        "cs": CS,
        "batches": orders,
        "speedup": SPEEDUP,
        "replay_wall_s": fmean(one.wall_s for one in every),
        "loop_lag_mean_s": lag_s,
        # as if every step of every trajectory that one slot holds, one after the other, were late by the mean
        "lag_share": lag_s * SPEEDUP * steps * len(workload) / CS / makespan_s,
        "cells": cells,
    }


def _play(workload: list[TraceTrajectory], urls: tuple[str, ...], way: str, ce: int, order: int) -> Played:
    given: dict[str, Any] = dict(WAYS[way])
    if given.get("admission") == "longest-first":
        given["profile"] = profile_of(workload)
    options = ReplayOptions(
        base_urls=urls, cs=CS, ce={"default": ce}, order=order, speedup=SPEEDUP, preset=DEFAULT_PRESET, **given
    )
    began_s = time.perf_counter()
    result: ReplayResult = anyio.run(replay, workload, options)
    figures = result.summary
    assert not result.failures, result.failures
    assert figures.makespan_s is not None
    return Played(figures.makespan_s, figures.loop_lag_mean_s or 0.0, time.perf_counter() - began_s)
