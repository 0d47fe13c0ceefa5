"""Chooses a speed-up that a machine can keep up with."""

from __future__ import annotations

from collections.abc import Sequence

from agentbatch.trace.workload import TraceTrajectory

TURN_WALL_S = 0.010
"""Wall time that one replayed turn costs on two shared cores, client and emulator together, with room to spare."""

MAX_SPEEDUP = 400.0
"""Beyond this the event loop's millisecond is most of a second of trace time."""


def choose_speedup(workload: Sequence[TraceTrajectory], makespan_s: float, wall_s: float) -> float:
    """Return a whole speed-up at which `makespan_s` of trace time takes about `wall_s`, or longer if turns need longer.

    Args:
        workload: what will be replayed; every turn costs wall time whatever the speed-up.
        makespan_s: what the replay is expected to take, trace seconds.
        wall_s: what it should take, wall seconds.
    """
    turns = sum(len(trajectory.turns) for trajectory in workload)
    return float(max(1, round(min(MAX_SPEEDUP, makespan_s / max(wall_s, turns * TURN_WALL_S)))))
