"""Carries out one `agentbatch plan`: reads the trace and the model, plans, shows the plan."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.progress import Progress

from agentbatch.cli.named import find_trace
from agentbatch.errors import UsageError
from agentbatch.plan.calibrate import MOST_RATIOS
from agentbatch.plan.config import read_config
from agentbatch.plan.kv import KvDtype
from agentbatch.plan.models import model_sizes
from agentbatch.plan.modes import Mode
from agentbatch.plan.plan import Plan, make_plan, refine
from agentbatch.plan.question import GB, Question
from agentbatch.plan.sizes import Deployment, ModelSizes
from agentbatch.plan.states import StateDtype
from agentbatch.report.console import say, stderr, stdout
from agentbatch.report.plan_table import plan_commands, plan_table
from agentbatch.sim.presets import DEFAULT_PRESET, Preset, preset
from agentbatch.trace.convert import Converted, read_converted
from agentbatch.trace.workload import TraceTrajectory, cap
from agentbatch.workloads import WORKLOADS, generate

MOST_BYTES = 10**12
"""More than any GPU has: no token or state takes that."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """The options of one `agentbatch plan`, as they stand on its command line."""

    model_config: Path | None
    kv_bytes: int | None
    state_bytes: int | None
    tp: int
    cache_memory_gb: float
    workers: int
    mode: Mode
    overlap: bool
    kv_cache_dtype: KvDtype
    mamba_ssm_dtype: StateDtype | None
    ce: int | None
    env_cap_s: float
    user_cap_s: float
    calibrate: bool
    preset: str | None
    """Engine whose step times are simulated; None for the default one."""


def carry_out(trace: str, asked: Asked, *, as_json: bool) -> None:
    """Plan and print the plan.

    Args:
        trace: file of trajectories or of a run, `sample`, or the name of a generated workload.
        asked: everything else.
        as_json: print JSON instead of a table.
    """
    figures = _plan(trace, asked).to_dict()
    if as_json:
        typer.echo(json.dumps(figures))
        return
    console = stdout()
    console.print(plan_table(figures))
    for line in plan_commands(figures, workers=asked.workers):
        console.print(line, soft_wrap=True)
    say(console, *(f"note: {warning}" for warning in figures["warnings"]))


def _plan(trace: str, asked: Asked) -> Plan:
    if asked.tp < 1:
        raise UsageError(f"--tp takes a whole number of at least 1, not {asked.tp}")
    deployment = Deployment(tp=asked.tp, kv_dtype=asked.kv_cache_dtype, state_dtype=asked.mamba_ssm_dtype)
    question = Question(
        sizes=_sizes(asked, deployment), deployment=deployment, memory_bytes=asked.cache_memory_gb * GB,
        workers=asked.workers, mode=asked.mode, overlap=asked.overlap, ce=asked.ce,
    )  # fmt: skip
    read = _read(trace)
    trajectories = [cap(one, env_cap_s=asked.env_cap_s, user_cap_s=asked.user_cap_s) for one in read.trajectories]
    plan = make_plan(question, trajectories, notes=read.notes)
    return _calibrated(plan, trajectories, preset(asked.preset or DEFAULT_PRESET)) if asked.calibrate else plan


def _read(given: str) -> Converted:
    path = find_trace(Path(given))
    if given in WORKLOADS and not path.exists():
        return Converted(trajectories=tuple(generate(given)))
    return read_converted(path)


def _calibrated(plan: Plan, trajectories: Sequence[TraceTrajectory], engine: Preset) -> Plan:
    from agentbatch.plan.simulated import simulated_makespan  # noqa: PLC0415 - loads the simulator

    ce = plan.question.ce if plan.question.ce is not None else plan.environment.ce
    makespan_of = simulated_makespan(trajectories, plan.question, ce=ce, engine=engine)
    with Progress(*Progress.get_default_columns(), console=stderr(), transient=True) as progress:
        task = progress.add_task("cache ratios simulated", total=MOST_RATIOS)
        return refine(plan, trajectories, makespan_of, on_tried=lambda ratio, makespan_s: progress.advance(task))


def _sizes(asked: Asked, deployment: Deployment) -> ModelSizes:
    """Return the sizes that the model's file or the user gives."""
    by_hand = asked.kv_bytes is not None or asked.state_bytes is not None
    if (asked.model_config is not None) == by_hand:
        raise UsageError("give either --model-config FILE, or --kv-bytes and --state-bytes: one of them, and not both")
    if asked.model_config is not None:
        return model_sizes(read_config(asked.model_config), deployment)
    if asked.kv_bytes is None or asked.state_bytes is None:
        raise UsageError("--kv-bytes and --state-bytes go together; --state-bytes 0 is a model without states")
    if not (1 <= asked.kv_bytes <= MOST_BYTES and 0 <= asked.state_bytes <= MOST_BYTES):
        raise UsageError(
            f"--kv-bytes must be at least 1 and --state-bytes at least 0, both at most {MOST_BYTES}, "
            f"not {asked.kv_bytes} and {asked.state_bytes}"
        )
    return ModelSizes(
        architecture="sizes given by hand", attention=None, linear=None, attention_layers=0, linear_layers=0,
        kv_bytes=asked.kv_bytes, state_bytes=asked.state_bytes or None, context_tokens=None,
    )  # fmt: skip
