"""Which CE a trace asks for: the fewest environment slots that do not hold the batch up.

With W the environment seconds of all trajectories, a batch lasts at least W / CE. Were environment slots no limit, CS
trajectories at a time would take max(ΣT / CS, longest T), T being a trajectory's own turns, stages and waits for a
person as recorded. The advice is the smallest CE at which the first is no more than the second:

    CE = ceil(W / max(ΣT / CS, longest T))

These are the asymptotic bounds that `policy/bottleneck` names, taken before the run. They leave out queueing, so a few
slots more shorten waits further; they take inference to be as fast as recorded, so a slower server needs fewer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from agentbatch.trace.workload import TraceTrajectory


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentAdvice:
    """What a trace shows of its environment, seconds."""

    work_s: float
    """W, all environment stages."""
    inference_s: float
    """All turns, where their time was recorded."""
    timed_turns: int
    """Turns whose time was recorded."""
    turns: int
    all_chains_s: float
    """ΣT / CS."""
    longest_chain_s: float
    """Longest T."""
    ce: int | None
    """The advice; None where no environment time was recorded."""

    @property
    def share(self) -> float | None:
        """Environment work over environment and inference; None where neither was recorded."""
        total = self.work_s + self.inference_s
        return self.work_s / total if total else None


def advise(trajectories: Sequence[TraceTrajectory], cs: int) -> EnvironmentAdvice:
    """Return what the trace shows and the CE it asks for.

    Args:
        trajectories: at least one.
        cs: CS, >= 1.
    """
    work_s = math.fsum(one.environment_s for one in trajectories)
    timed = [turn.infer_s for one in trajectories for turn in one.turns if turn.infer_s is not None]
    chains = [_chain_s(one) for one in trajectories]
    all_chains_s, longest_s = math.fsum(chains) / min(cs, len(chains)), max(chains)
    # rounding must not add a slot where W is a multiple
    ce = max(1, math.ceil(work_s / max(all_chains_s, longest_s) - 1e-9)) if work_s > 0 else None
    return EnvironmentAdvice(
        work_s=work_s, inference_s=math.fsum(timed), timed_turns=len(timed),
        turns=sum(len(one.turns) for one in trajectories), all_chains_s=all_chains_s, longest_chain_s=longest_s, ce=ce,
    )  # fmt: skip


def _chain_s(trajectory: TraceTrajectory) -> float:
    """Return how long one trajectory took by itself; a person's wait after its last turn delays nothing."""
    turns = trajectory.turns
    return math.fsum((
        trajectory.environment_s,
        *(turn.infer_s or 0.0 for turn in turns),
        *(turn.user_s or 0.0 for turn in turns[:-1]),
    ))  # fmt: skip
