"""The lower bound on a replay's makespan, from its workload alone: what no schedule could beat."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from agentbatch.events import WorkloadKnown
from agentbatch.sim.presets import Preset
from agentbatch.trace.workload import TraceTrajectory, TraceTurn

PREPARE_RESOURCE = "environment-start"
"""Takes the stage before turn 1 where `ce` names it, else `default` does."""


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


def stages(
    trajectory: TraceTrajectory, resource_of: Callable[[TraceTurn], str], prepare: str
) -> Iterator[tuple[str, float]]:
    """Yield (resource, seconds) of every environment stage."""
    if trajectory.env_prepare_s is not None:
        yield prepare, trajectory.env_prepare_s
    for turn in trajectory.turns:
        if turn.env_s is not None:
            yield resource_of(turn), turn.env_s


def workload_known(
    workload: Sequence[TraceTrajectory],
    *,
    source: str,
    resource_of: Callable[[TraceTurn], str],
    prepare: str,
    workers: int,
    engine: Preset | None,
    cs: int,
    inference_only: bool,
) -> WorkloadKnown:
    """Add up a workload's unavoidable work.

    Args:
        workload: the trajectories, capped as they will be replayed.
        source: where they come from, for people.
        resource_of: which resource a turn's environment stage takes.
        prepare: which resource the stage before turn 1 takes.
        workers: number of workers.
        engine: model of one worker; None when the engine is unknown, which leaves inference out of the bound.
        cs: admission limit: no more requests can share a decode step.
        inference_only: environment stages and a person's waits are skipped.
    """
    environment_s: dict[str, float] = {}
    engine_s = 0.0
    for trajectory in workload:
        if not inference_only:
            for resource, seconds in stages(trajectory, resource_of, prepare):
                environment_s[resource] = environment_s.get(resource, 0.0) + seconds
        if engine is not None:
            chunk = engine.config().chunked_prefill_tokens
            for turn in at_perfect_reuse(trajectory):
                engine_s += engine.cost.least_work_s(
                    turn.new, turn.cached, turn.output, max_batch=cs, chunk_tokens=chunk
                )
    return WorkloadKnown(
        source=source,
        trajectories=len(workload),
        environment_s=environment_s,
        engine_s=None if engine is None else engine_s,
        longest_chain_s=max(chain_s(one, engine, inference_only=inference_only) for one in workload),
        workers=workers,
    )


def chain_s(trajectory: TraceTrajectory, engine: Preset | None, *, inference_only: bool) -> float:
    """Return how long one trajectory takes alone on an idle engine, seconds."""
    seconds = 0.0
    if not inference_only:
        seconds += trajectory.env_prepare_s or 0.0
        seconds += sum(turn.env_s or 0.0 for turn in trajectory.turns)
        seconds += sum(turn.user_s or 0.0 for turn in trajectory.turns[:-1])  # a last one delays nothing
    if engine is not None:
        chunk = engine.config().chunked_prefill_tokens
        for turn in at_perfect_reuse(trajectory):
            seconds += engine.cost.fastest_turn_s(turn.new, turn.cached, turn.output, chunk_tokens=chunk)
    return seconds


def expected_makespan_s(
    workload: Sequence[TraceTrajectory], *, cs: int, ce: int, engine: Preset, inference_only: bool
) -> float:
    """Return roughly how long a batch takes, for choosing a speed-up: chains over CS, environment over CE."""
    chains = [chain_s(one, engine, inference_only=inference_only) for one in workload]
    environment = (
        0.0 if inference_only else sum(seconds for one in workload for _, seconds in stages(one, lambda turn: "", ""))
    )
    return max(sum(chains) / cs, environment / ce, *chains)
