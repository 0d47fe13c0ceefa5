"""Looks for a better cache ratio near r_bal (r̂, spec §6): a few neighbours, each simulated once.

Eq. 6 balances the pools for the mean trajectory at its end. A batch has trajectories of all lengths and all ages, so a
neighbour may do better; whether it does is for a simulation to say, which the caller supplies.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

STEPS = (-2, -1, 1, 2)
"""First neighbours, in factors of `FACTOR`."""

MOST_RATIOS = 1 + len(STEPS) + 2

FACTOR = 1.4
"""From one neighbour to the next; refined to its square root round the best."""

MARGIN = 0.02
"""A neighbour counts as better from two percent on: means over a few submission orders differ by one for no reason."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """What was tried and which ratio is best."""

    ratio: float
    """r̂: the best one tried, or r_bal where none is better by more than `MARGIN`."""
    makespan_s: float
    balanced_makespan_s: float
    """At r_bal."""
    tried: tuple[tuple[float, float], ...]
    """(ratio, makespan in seconds), by ratio."""


def calibrate(
    makespan_of: Callable[[float], float],
    balanced: float,
    *,
    feasible: Callable[[float], bool] = lambda ratio: True,
    on_tried: Callable[[float, float], None] = lambda ratio, makespan_s: None,
) -> Calibration:
    """Simulate r_bal and its neighbours, then those between the best and its own neighbours.

    Deterministic where `makespan_of` is: at most `MOST_RATIOS` ratios, each asked for once.

    Args:
        makespan_of: seconds that a batch takes at a ratio; the caller sets CS, pools and label capacity from it.
        balanced: r_bal, > 0.
        feasible: tells whether a ratio leaves room in both pools; others are passed over.
        on_tried: called after each ratio with its makespan, for progress.

    Raises:
        ValueError: `balanced` is not a positive number, or a makespan is not.
    """
    if not 0 < balanced < math.inf:
        raise ValueError(f"balanced must be a positive number, not {balanced!r}")
    tried: dict[float, float] = {}

    def at(step: float) -> None:
        ratio = balanced * FACTOR**step
        if ratio in tried or (step and not feasible(ratio)):
            return
        makespan_s = makespan_of(ratio)
        if not 0 < makespan_s < math.inf:
            raise ValueError(f"makespan_of must give a positive number, not {makespan_s!r}")
        tried[ratio] = makespan_s
        on_tried(ratio, makespan_s)

    at(0)
    for step in STEPS:
        at(step)
    best = round(math.log(_best(tried, balanced) / balanced, FACTOR))
    for half in (best - 0.5, best + 0.5):
        at(half)
    ratio = _best(tried, balanced)
    return Calibration(
        ratio=ratio, makespan_s=tried[ratio], balanced_makespan_s=tried[balanced], tried=tuple(sorted(tried.items()))
    )


def _best(tried: dict[float, float], balanced: float) -> float:
    """Return the ratio of the shortest makespan, the nearest to r_bal of several; r_bal unless beaten by `MARGIN`."""
    ratio = min(tried, key=lambda one: (tried[one], abs(math.log(one / balanced))))
    return ratio if tried[ratio] < tried[balanced] * (1 - MARGIN) else balanced
