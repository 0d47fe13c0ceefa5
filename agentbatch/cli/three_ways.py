"""Carries out `agentbatch demo`: the same batch under a unified gate, decoupled, and decoupled with CAAS."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import typer

from agentbatch.cli.named import sample_path
from agentbatch.cli.notes import notes_on_stderr
from agentbatch.cli.replaying import complain_of_failures
from agentbatch.emulator import spawn
from agentbatch.policy.caas import EnvironmentPolicy
from agentbatch.replay.bound import expected_makespan_s
from agentbatch.replay.options import ReplayOptions
from agentbatch.replay.pace import choose_speedup
from agentbatch.replay.routes import Routes
from agentbatch.replay.runner import ReplayResult, check, replay
from agentbatch.report.aggregate import merge_notices
from agentbatch.report.console import complain, say, stderr, stdout
from agentbatch.report.progress import ReplayProgress
from agentbatch.report.table import DEMO_ROWS, figures_table, note_lines
from agentbatch.sim import DEFAULT_PRESET
from agentbatch.sim.presets import preset
from agentbatch.trace.workload import TraceTrajectory, cap, limit, read_workload

CS, CE, WORKERS = 50, 3, 2
WAIT_CAP_S = 120.0
WALL_S, QUICK_WALL_S = 45.0, 10.0
"""What the slowest of the three replays should take."""

COMMON = ReplayOptions(base_urls=(), cs=CS, ce={"default": CE}, preset=DEFAULT_PRESET, source="demo")
WAYS: dict[str, tuple[str, bool, EnvironmentPolicy]] = {
    "unified": (f"unified {CE}", True, "fcfs"),
    "fcfs": (f"CS {CS} FCFS", False, "fcfs"),
    "caas": (f"CS {CS} CAAS", False, "caas"),
}
"""What JSON calls it: (column heading, unified, env_policy)."""

LEGEND = (
    f"unified {CE}    one limit for all: {CE} trajectories at once, as most harnesses have it",
    f"CS {CS}        {CS} trajectories at once, {CE} of them in their tools at any moment",
    "FCFS, CAAS   who gets a free tool slot: who came first, or who has come furthest",
)


def carry_out(trace: Path | None, *, limit_to: int | None, speedup: float | None, as_json: bool) -> None:
    """Replay the sample, or `trace`, three ways and print the comparison; when interrupted, of what has finished."""
    notes_on_stderr()
    whole = limit(read_workload(trace or sample_path()), limit_to)
    workload = [cap(one, env_cap_s=WAIT_CAP_S, user_cap_s=WAIT_CAP_S) for one in whole]
    check(workload, replace(COMMON, speedup=speedup))
    if speedup is None:
        speedup = _speedup(workload, WALL_S if limit_to is None else QUICK_WALL_S)
    say(
        stderr(),
        f"{len(workload)} recorded trajectories, {sum(len(one.turns) for one in workload):,} turns, on {WORKERS} "
        f"emulated workers at {speedup:g} × real time; waits capped at {WAIT_CAP_S:.0f} s",
    )
    done: dict[str, ReplayResult] = {}
    try:
        with spawn(workers=WORKERS, speedup=speedup) as emulated, ReplayProgress() as progress:
            common = replace(COMMON, base_urls=tuple(emulated.urls), speedup=speedup)
            anyio.run(_replay_all, workload, common, progress, done)
    except KeyboardInterrupt:
        complain(f"interrupted after {len(done)} of {len(WAYS)} ways")
        _show(done, workload, speedup, as_json=as_json)
        raise
    _show(done, workload, speedup, as_json=as_json)


def _speedup(workload: Sequence[TraceTrajectory], wall_s: float) -> float:
    engine, routes = preset(DEFAULT_PRESET), Routes(COMMON.ce)
    slowest_s = expected_makespan_s(workload, cs=CE, routes=routes, engine=engine, inference_only=False)
    return choose_speedup(workload, slowest_s, wall_s)


async def _replay_all(
    workload: Sequence[TraceTrajectory],
    common: ReplayOptions,
    progress: ReplayProgress,
    done: dict[str, ReplayResult],
) -> None:
    for name, (heading, unified, env_policy) in WAYS.items():
        options = replace(common, unified=unified, env_policy=env_policy)
        done[name] = await replay(workload, options, on_event=progress.hook(heading, len(workload)))


def _show(done: dict[str, ReplayResult], workload: Sequence[TraceTrajectory], speedup: float, *, as_json: bool) -> None:
    if not done:
        return
    for result in done.values():
        complain_of_failures(result)
    ways = {name: result.to_dict() for name, result in done.items()}
    identical = len({result.replies_digest for result in done.values()}) == 1
    if as_json:
        about = {"trajectories": len(workload), "workers": WORKERS, "cs": CS, "ce": CE, "speedup": speedup}
        typer.echo(json.dumps({**about, "replies_identical": identical, "ways": ways}))
        return
    columns = {WAYS[name][0]: figures for name, figures in ways.items()}
    console = stdout()
    console.print(
        figures_table(columns, rows=DEMO_ROWS, title="The same batch, three ways (trace seconds)", compare=True)
    )
    say(console, *LEGEND, "", *_conclusions(list(ways.values()), identical), *note_lines(_notices(ways)))


def _conclusions(ways: Sequence[dict[str, Any]], identical: bool) -> list[str]:
    lines = ['Look at "against the first": the same work on the same workers, done in so much less time.']
    share = ways[0]["environment_share"]
    if share is not None:
        lines.append(
            f"{100 * share:.0f} % of busy time was environment, {CE} at a time whatever else is done: see lower bound."
        )
    if len(ways) > 1:
        lines.append(
            "Every reply was the same in all of them: only time changed."
            if identical
            else "Replies were NOT the same in all of them: these figures do not compare."
        )
    return lines


def _notices(ways: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return merge_notices([figures["notices"] for figures in ways.values()])
