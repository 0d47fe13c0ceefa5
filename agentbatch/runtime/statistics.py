"""A snapshot of a running batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agentbatch.policy.slots import SlotStatistics


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchStatistics:
    """What the batch does right now; every count is read from state, none is kept beside it."""

    run: str
    now_s: float
    admission: SlotStatistics
    environment: Mapping[str, SlotStatistics]
    turns_in_flight: int
    turns_in_flight_per_worker: Mapping[str, int]
    turns_completed: int
    jobs_completed: int
    trajectories_completed: int
    trajectories_failed: int
    attempts_failed: int
    inference_in_environment: int
    passed_through: int
    """Calls of the module-level `environment()` and `act()` made outside any trajectory, hence ungated."""
    notices: int
