"""Carries out one `agentbatch replay`: reads the trace, starts emulated workers if asked to, replays, shows figures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import typer

from agentbatch.cli.named import find_workload
from agentbatch.cli.notes import notes_on_stderr
from agentbatch.emulator import spawn
from agentbatch.replay.bound import expected_makespan_s
from agentbatch.replay.options import ReplayOptions
from agentbatch.replay.orders import check_records, record_path, replay_orders
from agentbatch.replay.pace import choose_speedup
from agentbatch.replay.routes import Routes
from agentbatch.replay.runner import ReplayResult, check
from agentbatch.report.aggregate import aggregate
from agentbatch.report.console import complain, say, stdout
from agentbatch.report.progress import ReplayProgress
from agentbatch.report.table import binding_lines, figures_table, note_lines, spread_columns
from agentbatch.sim.presets import preset
from agentbatch.trace.profile import read_profile
from agentbatch.trace.workload import TraceTrajectory, cap, limit

WALL_S = 30.0
"""How long a replay against emulated workers should take when no speed-up is given."""

SHOWN_FAILURES = 5


def carry_out(
    trace: Path,
    options: ReplayOptions,
    *,
    profile: Path | None = None,
    emulated: dict[str, Any] | None,
    limit_to: int | None,
    env_cap_s: float | None,
    user_cap_s: float | None,
    orders: int,
    as_json: bool,
) -> None:
    """Replay `trace` in `orders` submission orders and print the figures.

    Everything that can be refused is refused before a worker starts. When interrupted, orders that finished are shown.

    Args:
        trace: file of recorded trajectories.
        options: what to replay against, and how; without URLs where workers are `emulated`.
        profile: file that says how long trajectories take, capped as `trace` is.
        emulated: arguments of `spawn`, all but the speed-up; None to replay against `options.base_urls`.
        limit_to: only so many trajectories. env_cap_s, user_cap_s: longest waits, seconds.
        orders: how many submission orders.
        as_json: print JSON instead of a table.
    """
    notes_on_stderr()
    check_records(options.record, orders)
    waits = {"env_cap_s": env_cap_s, "user_cap_s": user_cap_s}
    workload = [cap(one, **waits) for one in limit(find_workload(str(trace), options.seed), limit_to)]
    if profile is not None:
        known = read_profile(profile, **(dict.fromkeys(waits, 0.0) if options.inference_only else waits))
        options = replace(options, profile=known)
    check(workload, options)
    done: list[ReplayResult] = []
    try:
        with ExitStack() as stack:
            if emulated is not None:
                options = replace(options, speedup=options.speedup or _speedup(workload, options))
                workers = stack.enter_context(spawn(speedup=options.speedup or 1.0, **emulated))
                options = replace(options, base_urls=tuple(workers.urls))
            progress = stack.enter_context(ReplayProgress())
            title = "unified" if options.unified else options.env_policy
            anyio.run(
                replay_orders,
                workload,
                options,
                orders,
                lambda order: progress.hook(title if orders == 1 else f"{title} {order}", len(workload)),
                done.append,
            )
    except KeyboardInterrupt:
        complain(_interrupted(options.record, orders, len(done)))
        show(done, as_json=as_json)
        raise
    show(done, as_json=as_json)


def _speedup(workload: Sequence[TraceTrajectory], options: ReplayOptions) -> float:
    slots = min(options.cs, *options.ce.values()) if options.unified else options.cs
    expected_s = expected_makespan_s(
        workload,
        cs=slots,
        routes=Routes(options.ce),
        engine=preset(options.preset or ""),
        inference_only=options.inference_only,
    )
    return choose_speedup(workload, expected_s, WALL_S)


def _interrupted(record: str | None, orders: int, finished: int) -> str:
    said = "interrupted" if orders == 1 else f"interrupted after {finished} of {orders} orders"
    path = record_path(record, finished)
    if path is None or not Path(path).exists():
        return said
    return f"{said}; what ran is in {path}: agentbatch summary {path}"


def show(results: Sequence[ReplayResult], *, as_json: bool) -> None:
    """Print the figures of one or more replays on stdout, and what failed on stderr; nothing where there are none."""
    if not results:
        return
    for result in results:
        complain_of_failures(result)
    figures = aggregate([result.to_dict() for result in results])
    if as_json:
        typer.echo(json.dumps(figures))
        return
    console = stdout()
    columns: Mapping[str, Mapping[str, Any]] = {"replay": figures} if len(results) == 1 else spread_columns(figures)
    console.print(figures_table(columns))
    if len(results) > 1:
        makespans = "  ".join(f"{one['makespan_s']:,.0f}" for one in figures["orders"])
        say(console, f"makespan of each order, s: {makespans}")
    say(console, *binding_lines(figures), *note_lines(figures["notices"]))


def complain_of_failures(result: ReplayResult) -> None:
    """Name the first trajectories that failed, on stderr."""
    for failed in result.failures[:SHOWN_FAILURES]:
        complain(f"trajectory {failed.key} failed: {type(failed.error).__name__}: {failed.error}")
    if len(result.failures) > SHOWN_FAILURES:
        complain(f"{len(result.failures) - SHOWN_FAILURES} more trajectories failed")
