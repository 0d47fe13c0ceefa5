"""What a trace says about the cache that its trajectories need: L_kv(D), contexts and the longest of them (spec §6)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from agentbatch.errors import UsageError
from agentbatch.trace.workload import TraceTrajectory


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """Lengths of a workload's contexts, tokens."""

    trajectories: int
    l_kv_tokens: float
    """L_kv(D): prompt + output of the last turn, summed over a trajectory's contexts; mean over trajectories."""
    peak_tokens: float
    """The same of each context where it was longest: more than `l_kv_tokens` where prompts shrink before the end."""
    spread: float
    """Standard deviation of that sum over its mean."""
    low_tokens: int
    """10th percentile of that sum."""
    high_tokens: int
    """90th percentile of that sum."""
    contexts: float
    """Contexts per trajectory, mean."""
    longest_tokens: int
    """Longest prompt + output of any turn."""
    longest_id: str
    """Trajectory that it belongs to."""


def final_tokens(trajectory: TraceTrajectory) -> dict[str, int]:
    """Return prompt + output of the last turn of each context, by role; "" where turns have no role."""
    return {turn.role or "": turn.prompt_tokens + turn.output_tokens for turn in trajectory.turns}  # the last one wins


def peak_tokens(trajectory: TraceTrajectory) -> int:
    """Return prompt + output of the longest turn of each context, summed."""
    longest: dict[str, int] = {}
    for turn in trajectory.turns:
        role = turn.role or ""
        longest[role] = max(longest.get(role, 0), turn.prompt_tokens + turn.output_tokens)
    return sum(longest.values())


def profile(trajectories: Sequence[TraceTrajectory]) -> Profile:
    """Take the lengths of a workload.

    Raises:
        UsageError: no trajectory, or none that ends with any token.
    """
    contexts = [final_tokens(one) for one in trajectories]
    finals = sorted(sum(lengths.values()) for lengths in contexts)
    if not finals or finals[-1] == 0:
        raise UsageError("the trace holds no tokens at the end of any trajectory: nothing to plan with")
    mean = math.fsum(finals) / len(finals)
    variance = math.fsum((length - mean) ** 2 for length in finals) / len(finals)
    longest, owner = max(
        ((turn.prompt_tokens + turn.output_tokens, one.id) for one in trajectories for turn in one.turns),
        key=lambda pair: pair[0],
    )
    return Profile(
        trajectories=len(finals),
        l_kv_tokens=mean,
        peak_tokens=math.fsum(map(peak_tokens, trajectories)) / len(finals),
        spread=math.sqrt(variance) / mean,
        low_tokens=_percentile(finals, 10),
        high_tokens=_percentile(finals, 90),
        contexts=sum(map(len, contexts)) / len(contexts),
        longest_tokens=longest,
        longest_id=owner,
    )


def _percentile(ordered: Sequence[int], percent: int) -> int:
    """Return the smallest value that at least `percent` % of them do not exceed."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]
