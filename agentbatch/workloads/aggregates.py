"""The figures by which a workload is compared with what the paper publishes (spec §9)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from agentbatch.trace.workload import TraceTrajectory
from agentbatch.workloads.footprint import balanced_ratio, capacity


@dataclass(frozen=True, kw_only=True, slots=True)
class Distribution:
    """Mean, 10th, 50th and 90th percentile (nearest rank) and largest of a quantity."""

    mean: float
    p10: float
    p50: float
    p90: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Distribution:
        """Sum up at least one value."""
        ordered = sorted(values)

        def percentile(share: float) -> float:
            return ordered[math.ceil(share * len(ordered)) - 1]

        mean = math.fsum(ordered) / len(ordered)
        return cls(mean=mean, p10=percentile(0.1), p50=percentile(0.5), p90=percentile(0.9), max=ordered[-1])


@dataclass(frozen=True, kw_only=True, slots=True)
class Aggregates:
    """Figures of a workload whose trajectories have one context each."""

    trajectories: int
    requests: int
    output_tokens: int
    turns: Distribution
    """Per trajectory."""
    output_tokens_per_turn: Distribution
    first_prompt_tokens: Distribution
    last_context_tokens: Distribution
    """Prompt and output of a trajectory's last turn; the mean is L_kv(D)."""
    environment_stages: int
    environment_s: float
    """All stages together, seconds."""
    stage_s: Distribution | None
    """None where there is no stage."""
    r_bal: float
    """F_state / F_kv (Eq. 6) with the footprint that `footprint` infers."""
    capacity_per_worker: int
    """C at r_bal (Eq. 7) with the same footprint."""


def aggregate(trajectories: Sequence[TraceTrajectory]) -> Aggregates:
    """Return the figures of at least one trajectory."""
    turns = [turn for trajectory in trajectories for turn in trajectory.turns]
    stages = [turn.env_s for turn in turns if turn.env_s is not None]
    ends = [trajectory.turns[-1] for trajectory in trajectories]
    context = Distribution.of([turn.prompt_tokens + turn.output_tokens for turn in ends])
    r_bal = balanced_ratio(context.mean)
    return Aggregates(
        trajectories=len(trajectories),
        requests=len(turns),
        output_tokens=sum(turn.output_tokens for turn in turns),
        turns=Distribution.of([len(trajectory.turns) for trajectory in trajectories]),
        output_tokens_per_turn=Distribution.of([turn.output_tokens for turn in turns]),
        first_prompt_tokens=Distribution.of([trajectory.turns[0].prompt_tokens for trajectory in trajectories]),
        last_context_tokens=context,
        environment_stages=len(stages),
        environment_s=math.fsum(stages),
        stage_s=Distribution.of(stages) if stages else None,
        r_bal=r_bal,
        capacity_per_worker=capacity(r_bal),
    )
