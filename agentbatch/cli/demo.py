"""`agentbatch demo`: one batch of real agent trajectories, three ways."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import anyio
import typer

import agentbatch
from agentbatch.emulator import spawn
from agentbatch.errors import TraceError
from agentbatch.replay.bound import expected_makespan_s
from agentbatch.replay.options import ReplayOptions
from agentbatch.replay.pace import choose_speedup
from agentbatch.replay.runner import replay
from agentbatch.report.console import stderr, stdout
from agentbatch.report.progress import ReplayProgress
from agentbatch.report.table import DEMO_ROWS, summary_table
from agentbatch.sim import DEFAULT_PRESET
from agentbatch.sim.presets import preset
from agentbatch.trace.summary import Summary
from agentbatch.trace.workload import TraceTrajectory, cap, read_workload

CS, CE, WORKERS = 50, 3, 2
WAIT_CAP_S = 120.0
WALL_S = 50.0
"""What the slowest of the three replays should take."""

QUICK = 24
"""Trajectories of `--quick`."""


def sample_path() -> Path:
    """Find the sample: inside the installed package, or in the checkout it was installed from."""
    packaged = Path(str(files("agentbatch"))) / "examples" / "sample.jsonl"
    checkout = Path(next(iter(agentbatch.__path__))).parent / "examples" / "traces" / "sample.jsonl"
    for path in (packaged, checkout):
        if path.is_file():
            return path
    raise TraceError("the sample trace is not installed; give one with --trace")


def demo(
    trace: Annotated[
        Path | None, typer.Option(help="Another trace than the sample that comes with agentbatch.")
    ] = None,
    speedup: Annotated[
        float | None, typer.Option(help="Trace seconds per wall second; by default chosen to fit.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help=f"Only {QUICK} trajectories, for a first look.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per way on stdout.")] = False,
) -> None:
    """Replay a sample of real agent trajectories on two emulated workers, three ways, and compare.

    (1) the unified gate that today's harnesses have; (2) separate limits for inference and tools; (3) the same with
    Chain-Advancing Action Scheduling. The step from (2) to (3) depends on the batch and can be nil: see
    `agentbatch replay --orders`.
    """
    workload = [cap(one, env_cap_s=WAIT_CAP_S, user_cap_s=WAIT_CAP_S) for one in read_workload(trace or sample_path())]
    if quick:
        workload = workload[:QUICK]
    if speedup is None:
        expected = expected_makespan_s(workload, cs=CE, ce=CE, engine=preset(DEFAULT_PRESET), inference_only=False)
        speedup = choose_speedup(workload, expected, WALL_S / (4 if quick else 1))
    stderr().print(
        f"{len(workload)} recorded trajectories, {sum(len(one.turns) for one in workload):,} turns, on {WORKERS} emulated "
        f"workers at {speedup:g} × real time; waits capped at {WAIT_CAP_S:.0f} s"
    )
    runs = anyio.run(_three_ways, workload, speedup)
    if as_json:
        typer.echo(json.dumps({name: run.to_dict() for name, run in runs.items()}))
        return
    stdout().print(summary_table(runs, rows=DEMO_ROWS, title="The same batch, three ways (trace seconds)"))
    share = next(iter(runs.values())).environment_share
    if share is not None:
        stdout().print(
            f"{100 * share:.0f} % of busy time was environment, which CE = {CE} serialises whatever else is done: that bounds "
            "the gain. Order effects: agentbatch replay --orders 5."
        )


async def _three_ways(workload: list[TraceTrajectory], speedup: float) -> dict[str, Summary]:
    async with spawn(workers=WORKERS, speedup=speedup) as emulated:
        common = ReplayOptions(
            base_urls=tuple(emulated.urls), cs=CS, ce={"default": CE}, speedup=speedup, preset=DEFAULT_PRESET,
            source="sample",
        )  # fmt: skip
        ways = {
            f"unified, CS = CE = {CE}": replace(common, unified=True, env_policy="fcfs"),
            f"CS {CS}, CE {CE}, FCFS": replace(common, env_policy="fcfs"),
            f"CS {CS}, CE {CE}, CAAS": common,
        }
        with ReplayProgress() as progress:
            return {
                name: (await replay(workload, options, on_event=progress.hook(name, len(workload)))).summary
                for name, options in ways.items()
            }
