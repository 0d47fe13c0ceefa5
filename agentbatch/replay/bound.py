"""The lower bound on a replay's makespan, from its workload alone: what no schedule could beat."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from agentbatch.events import WorkloadKnown
from agentbatch.replay.routes import Routes
from agentbatch.sim.presets import Preset
from agentbatch.trace.workload import TraceTrajectory

Recorded = Literal["recorded"]
RECORDED: Final = "recorded"
"""Stands for an engine where turns take their recorded seconds, however many are in flight."""


@dataclass(frozen=True, slots=True)
class TurnTokens:
    """One turn at perfect reuse: everything that stood before is cached. Tokens."""

    new: int
    cached: int
    output: int


def at_perfect_reuse(trajectory: TraceTrajectory) -> Iterator[TurnTokens]:
    """Yield each turn's tokens if nothing were ever evicted; a restarted context keeps the shared prefix (spec §7)."""
    shared = trajectory.system_tokens + trajectory.tool_tokens
    stood: dict[str, int] = {}
    for turn in trajectory.turns:
        role = turn.role or ""
        before = stood.get(role)
        prompt = max(1, turn.prompt_tokens)
        cached = shared if before is None or before > turn.prompt_tokens else before
        cached = min(cached, prompt - 1)  # the last prompt token is always computed
        output = max(1, turn.output_tokens)
        yield TurnTokens(prompt - cached, cached, output)
        stood[role] = turn.prompt_tokens + turn.output_tokens


def workload_known(
    workload: Sequence[TraceTrajectory],
    *,
    source: str,
    routes: Routes,
    workers: int,
    engine: Preset | Recorded | None,
    cs: int,
    inference_only: bool,
    chunk_tokens: int | None = None,
) -> WorkloadKnown:
    """Add up a workload's unavoidable work.

    Args:
        workload: the trajectories, capped as they will be replayed.
        source: where they come from, for people.
        routes: which resource each environment stage takes.
        workers: number of workers.
        engine: model of one worker; `RECORDED` puts recorded inference into the chains and nothing else; None when the
            engine is unknown, which leaves inference out of the bound.
        cs: admission limit: no more requests can share a decode step.
        inference_only: environment stages and a person's waits are skipped.
        chunk_tokens: prefill budget of one step; by default the engine's.
    """
    return WorkloadKnown(
        source=source,
        trajectories=len(workload),
        environment_s={} if inference_only else routes.work_s(workload),
        engine_s=(
            sum(engine_work_s(one, engine, cs, chunk_tokens) for one in workload)
            if isinstance(engine, Preset)
            else None
        ),
        longest_chain_s=max(
            chain_s(one, engine, inference_only=inference_only, chunk_tokens=chunk_tokens) for one in workload
        ),
        workers=workers,
    )


def engine_work_s(trajectory: TraceTrajectory, engine: Preset, cs: int, chunk_tokens: int | None = None) -> float:
    """Return the engine seconds of one trajectory at perfect reuse, its steps shared as well as `cs` allows."""
    chunk = chunk_tokens or engine.config().chunked_prefill_tokens
    return sum(
        engine.cost.least_work_s(turn.new, turn.cached, turn.output, max_batch=cs, chunk_tokens=chunk)
        for turn in at_perfect_reuse(trajectory)
    )


def chain_s(
    trajectory: TraceTrajectory,
    engine: Preset | Recorded | None,
    *,
    inference_only: bool,
    chunk_tokens: int | None = None,
) -> float:
    """Return how long one trajectory takes alone on an idle engine, seconds; with `RECORDED` as recorded."""
    seconds = 0.0
    if not inference_only:
        seconds += trajectory.environment_s
        seconds += sum(turn.user_s or 0.0 for turn in trajectory.turns[:-1])  # a last one delays nothing
    if engine == RECORDED:
        seconds += sum(turn.infer_s or 0.0 for turn in trajectory.turns)
    elif isinstance(engine, Preset):
        chunk = chunk_tokens or engine.config().chunked_prefill_tokens
        for turn in at_perfect_reuse(trajectory):
            seconds += engine.cost.fastest_turn_s(turn.new, turn.cached, turn.output, chunk_tokens=chunk)
    return seconds


def expected_makespan_s(
    workload: Sequence[TraceTrajectory], *, cs: int, routes: Routes, engine: Preset, inference_only: bool
) -> float:
    """Return roughly how long a batch takes, for choosing a speed-up: chains over CS, environment over CE."""
    chains = [chain_s(one, engine, inference_only=inference_only) for one in workload]
    work_s = {} if inference_only else routes.work_s(workload)
    environments = [seconds / routes.ce[resource] for resource, seconds in work_s.items()]
    return max(sum(chains) / cs, *environments, *chains)
