"""What goes beyond the paper, proved or refuted: ways to order a batch against FIFO + CAAS, in simulation and replay.

Only when named. `python -m benchmarks beyond` simulates (20 minutes on one core), `--live` replays over HTTP (15
minutes on two). Each writes its tables into `docs/beyond.md`; `--quick` writes nothing.

Traces: the variable BEYOND_TRACES, two paths with a colon between them, coding sessions first and then a trace whose
stages are stretched 30 times. By default the Claude Code and SWE-agent parts of the sample.
"""

import gc
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from agentbatch.trace.workload import TraceTrajectory, read_workload
from benchmarks import beyond_page
from benchmarks.beyond_ways import BASE, SAMPLE, WAYS, Outcome, compared, forget, play, resampled, shaped

CS = 50
BATCHES = 20
FEW = (BASE, "LF + depth", "LF + CAAS auto")
SOME = (*FEW, "FIFO + CAAS auto", "FIFO + slow-step")

PLAN: tuple[tuple[str, str, str, Sequence[int], Sequence[str]], ...] = (
    ("stretched", "recorded seconds", "orders", (3, 5, 10), tuple(WAYS)),
    ("stretched", "recorded seconds", "resampled", (3, 5, 10), tuple(WAYS)),
    ("stretched", "engine", "orders", (5,), tuple(WAYS)),
    ("coding sessions", "recorded seconds", "orders", (3, 5, 10), tuple(WAYS)),
    ("coding sessions, people as recorded", "recorded seconds", "orders", (3,), SOME),
    ("coding sessions", "engine", "orders", (3,), FEW),
    ("coding sessions", "recorded seconds", "resampled", (3, 5, 10), tuple(WAYS)),
)
"""Workload, server, what varies from batch to batch, CE, ways. The engine takes ten times as long: fewer."""


def traces() -> dict[str, list[TraceTrajectory]]:
    """Read both traces, as recorded."""
    given = os.environ.get("BEYOND_TRACES")
    if given:
        sessions, stretched = (read_workload(path) for path in given.split(os.pathsep))
    else:
        sample = read_workload(SAMPLE)
        sessions, stretched = ([one for one in sample if one.domain == d] for d in ("claude-code", "swe-agent"))
    return {"sessions": sessions, "stretched": stretched}


def run(quick: bool = False, live: bool = False) -> dict:
    """Return every cell's figures, and write the page; `quick`: a few trajectories, two batches, nothing written."""
    if live:
        from benchmarks import beyond_live

        figures = beyond_live.run(quick=quick)
        if not quick:
            beyond_page.write_live(figures)
        return figures
    recorded = {name: each[: 12 if quick else None] for name, each in traces().items()}
    workloads = {
        "coding sessions": shaped(recorded["sessions"], user_cap_s=120.0, env_scale=1.0),
        "coding sessions, people as recorded": shaped(recorded["sessions"], user_cap_s=None, env_scale=1.0),
        "stretched": shaped(recorded["stretched"], user_cap_s=None, env_scale=30.0),
    }
    gc.freeze()
    cells: list[dict] = []
    figures = {
        "traces": [Path(path).name for path in os.environ.get("BEYOND_TRACES", SAMPLE.name).split(os.pathsep)],
        "trajectories": {name: len(each) for name, each in workloads.items()},
        "batches": 2 if quick else BATCHES,
        "cells": cells,
    }
    for name, server, varies, ces, ways in PLAN:
        for ce in ces:
            began_s = time.process_time()
            outcomes = simulated(workloads[name], server, varies, ce, ways, 2 if quick else BATCHES)
            cells.append({"workload": name, "server": server, "varies": varies, "ce": ce, "ways": compared(outcomes)})
            print(f"{name}, {server}, {varies}, CE {ce}: {time.process_time() - began_s:.0f} s", file=sys.stderr)
            if not quick:
                beyond_page.write_simulated(figures)  # as far as it has come, since it takes long
    return figures


def simulated(
    workload: list[TraceTrajectory], server: str, varies: str, ce: int, ways: Sequence[str], batches: int
) -> dict[str, list[Outcome]]:
    """Simulate every way on the same batches: submission orders of `workload`, or batches drawn from it."""
    forget()
    outcomes: dict[str, list[Outcome]] = {way: [] for way in ways}
    kept = [workload if varies == "orders" else resampled(workload, number) for number in range(batches)]
    for number, batch in enumerate(kept):
        order = number if varies == "orders" else 0
        for way in ways:
            outcomes[way].append(play(batch, WAYS[way], server, cs=CS, ce=ce, order=order))
    return outcomes
