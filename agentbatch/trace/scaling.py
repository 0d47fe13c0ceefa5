"""Stretches the environment of a workload, to ask what slower or faster tools would change."""

from __future__ import annotations

from agentbatch.errors import UsageError
from agentbatch.trace.workload import TraceTrajectory

MOST = 1_000_000
"""Stages of a second would take days: sums of seconds stay exact enough to compare."""


def scale_environment(trajectory: TraceTrajectory, factor: float) -> TraceTrajectory:
    """Return a copy whose environment stages, the one before turn 1 included, are `factor` times as long.

    Where stages are capped as well, cap first: a cap is for what the recording caught by mistake.

    Args:
        trajectory: left as it is.
        factor: 0 to `MOST`; a person's waits and turns stay as they are.

    Raises:
        UsageError: the factor is out of range.
    """
    check_scale(factor)
    if factor == 1:
        return trajectory
    turns = tuple(turn.model_copy(update={"env_s": _times(turn.env_s, factor)}) for turn in trajectory.turns)
    return trajectory.model_copy(
        update={"turns": turns, "env_prepare_s": _times(trajectory.env_prepare_s, factor)}
    )


def check_scale(factor: float) -> None:
    """Raise UsageError unless `factor` is 0 to `MOST`."""
    if not 0 <= factor <= MOST:
        raise UsageError(f"the scale of environment stages must be 0 or more, at most {MOST:,}, not {factor!r}")


def _times(seconds: float | None, factor: float) -> float | None:
    return None if seconds is None else seconds * factor
