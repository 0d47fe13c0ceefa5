"""What a batch has done so far: running totals, each added to in one place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Account:
    """Totals over the life of one batch.

    Attributes:
        turns_completed: model calls that succeeded. attempts_failed: tries that did not, retried or not.
        jobs_completed: environment jobs that held a slot and gave it back.
        inference_in_environment: model calls made while their task held an environment slot.
        passed_through: calls of the module-level `environment()` and `act()` outside any trajectory, hence ungated.
        priority_s: wall seconds spent computing scheduling priorities (spec §8, Table 1).
    """

    turns_completed: int = 0
    attempts_failed: int = 0
    jobs_completed: int = 0
    inference_in_environment: int = 0
    passed_through: int = 0
    priority_s: float = 0.0
