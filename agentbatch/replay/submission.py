"""In which order a workload is submitted, for replay and simulation alike."""

from __future__ import annotations

import random
from collections.abc import Sequence

from agentbatch.trace.workload import TraceTrajectory


def ordered(workload: Sequence[TraceTrajectory], order: int, seed: int) -> list[TraceTrajectory]:
    """Return the workload in submission order number `order`: 0 is the file's own, others are seeded shuffles."""
    submitted = list(workload)
    if order:
        random.Random(f"{seed}/{order}").shuffle(submitted)  # noqa: S311 - a reproducible order
    return submitted
