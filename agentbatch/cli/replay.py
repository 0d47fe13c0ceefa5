"""`agentbatch replay`: recorded trajectories against a live server, or against emulated workers."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Literal

import anyio
import typer

from agentbatch.cli.limits import parse_limits
from agentbatch.emulator import spawn
from agentbatch.errors import UsageError
from agentbatch.replay.bound import expected_makespan_s
from agentbatch.replay.options import ReplayOptions
from agentbatch.replay.orders import replay_orders
from agentbatch.replay.pace import choose_speedup
from agentbatch.replay.runner import ReplayResult
from agentbatch.report.aggregate import aggregate
from agentbatch.report.console import stderr, stdout
from agentbatch.report.progress import ReplayProgress
from agentbatch.report.table import summary_table
from agentbatch.sim import DEFAULT_PRESET
from agentbatch.sim.presets import preset as preset_named
from agentbatch.trace.workload import TraceTrajectory, cap, limit, read_workload

WALL_S = 30.0
"""How long a replay against emulated workers should take when no speed-up is given."""


def replay(
    trace: Annotated[Path, typer.Argument(help="Recorded trajectories, one JSON object a line (see docs/traces.md).")],
    url: Annotated[
        list[str] | None, typer.Option(help="OpenAI base URL of the server; give it once per worker.")
    ] = None,
    emulate: Annotated[int | None, typer.Option(help="Start this many emulated workers instead.")] = None,
    speedup: Annotated[
        float | None,
        typer.Option(help="Trace seconds per wall second; by default what this machine keeps up with, 1 with --url."),
    ] = None,
    cs: Annotated[int, typer.Option(help="Admission limit: trajectories active at once.")] = 50,
    ce: Annotated[
        str, typer.Option(help="Environment limit: N, or name=N,… by env_name; `default` takes the rest.")
    ] = "3",
    env_policy: Annotated[Literal["caas", "fcfs"], typer.Option(help="Order of waiting environment jobs.")] = "caas",
    unified: Annotated[
        bool, typer.Option("--unified", help="The baseline: one gate, CS = min(cs, smallest ce).")
    ] = False,
    band_s: Annotated[float, typer.Option(help="CAAS band B, seconds (Eq. 13).")] = 30.0,
    bucket_s: Annotated[float, typer.Option(help="CAAS cost bucket dI, seconds (Eq. 15).")] = 1.0,
    limit_to: Annotated[int | None, typer.Option("--limit", help="Only the first N trajectories of the file.")] = None,
    env_cap_s: Annotated[
        float, typer.Option(help="Longest environment stage; longer ones held a person's approval.")
    ] = 120.0,
    user_cap_s: Annotated[
        float | None, typer.Option(help="Longest wait for a person (user_s); by default as recorded.")
    ] = None,
    inference_only: Annotated[
        bool, typer.Option("--inference-only", help="Skip environment stages and waits.")
    ] = False,
    model: Annotated[str | None, typer.Option(help="Model name to send; by default the server's first.")] = None,
    schedule_policy: Annotated[str, typer.Option(help="Queue order inside the emulated workers.")] = "fcfs",
    kv_tokens: Annotated[int | None, typer.Option(help="KV cache of each emulated worker, tokens.")] = None,
    state_slots: Annotated[int | None, typer.Option(help="Recurrent-state slots of each emulated worker.")] = None,
    preset: Annotated[
        str | None, typer.Option(help="Engine model; with --url it adds inference to the lower bound.")
    ] = None,
    flush: Annotated[bool, typer.Option("--flush/--no-flush", help="Empty the server's cache before each run.")] = True,
    seed: Annotated[int, typer.Option(help="Seed of the text and of the submission orders.")] = 0,
    orders: Annotated[int, typer.Option(help="Replay in K submission orders; the first is the file's own.")] = 1,
    record: Annotated[Path | None, typer.Option(help="Write each run's events here (JSON lines).")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on stdout instead of the table.")
    ] = False,
) -> None:
    """Replay recorded trajectories and report how long the batch took, and why.

    Every prompt holds the replies generated in this very replay and answers as long as recorded ones; nothing is executed,
    an environment stage holds its slot for the recorded time. All figures are trace seconds, except wall_s.

    [bold]Try it:[/bold] agentbatch replay examples/traces/sample.jsonl --emulate 2 --cs 50 --ce 3
    """
    if (emulate is None) == (not url):
        raise UsageError("say what to replay against: --url URL (once per worker), or --emulate N")
    if orders < 1 or (limit_to is not None and limit_to < 1) or (emulate is not None and emulate < 1):
        raise UsageError("--orders, --limit and --emulate take whole numbers of at least 1")
    limits = parse_limits(ce)
    workload = [cap(one, env_cap_s=env_cap_s, user_cap_s=user_cap_s) for one in limit(read_workload(trace), limit_to)]
    engine = (preset or DEFAULT_PRESET) if emulate else preset
    if engine is not None:
        preset_named(engine)
    if speedup is None:
        slots = min(cs, *limits.values()) if unified else cs
        speedup = _speedup(workload, limits, slots, engine, inference_only) if emulate else 1.0
    with ExitStack() as stack:
        urls = tuple(url or ())
        if emulate:
            emulated = spawn(
                workers=emulate, speedup=speedup, preset=engine or DEFAULT_PRESET, schedule_policy=schedule_policy,
                kv_tokens=kv_tokens, state_slots=state_slots,
            )  # fmt: skip
            urls = tuple(stack.enter_context(emulated).urls)
        options = ReplayOptions(
            base_urls=urls, cs=cs, ce=limits, env_policy=env_policy, unified=unified, band_s=band_s, bucket_s=bucket_s,
            speedup=speedup, inference_only=inference_only, model=model, flush=flush, seed=seed,
            record=None if record is None else str(record), preset=engine, source=trace.name,
        )  # fmt: skip
        progress = stack.enter_context(ReplayProgress())
        title = "unified" if unified else env_policy
        results = anyio.run(
            replay_orders,
            workload,
            options,
            orders,
            lambda order: progress.hook(title if orders == 1 else f"{title} {order}", len(workload)),
        )
    _show(results, as_json=as_json)


def _speedup(
    workload: list[TraceTrajectory], limits: dict[str, int], slots: int, engine: str | None, inference_only: bool
) -> float:
    expected = expected_makespan_s(
        workload, cs=slots, ce=min(limits.values()), engine=preset_named(engine or DEFAULT_PRESET),
        inference_only=inference_only,
    )  # fmt: skip
    return choose_speedup(workload, expected, WALL_S)


def _show(results: list[ReplayResult], *, as_json: bool) -> None:
    for result in results:
        for failed in result.failures[:5]:
            stderr().print(f"failed: {failed.key}: {type(failed.error).__name__}: {failed.error}", markup=False)
    if as_json:
        typer.echo(json.dumps(aggregate([result.summary for result in results])))
        return
    names = ["replay"] if len(results) == 1 else [f"order {order}" for order in range(len(results))]
    stdout().print(summary_table({name: result.summary for name, result in zip(names, results, strict=True)}))
    if len(results) > 1:
        spread = aggregate([result.summary for result in results])
        low, high = spread["range"]["makespan_s"]
        stdout().print(
            f"makespan over {len(results)} orders: mean {spread['makespan_s']:,.0f} s, {low:,.0f} to {high:,.0f} s"
        )
    for notice in dict.fromkeys(notice.message for result in results for notice in result.notices):
        stdout().print(f"note: {notice}", markup=False)
