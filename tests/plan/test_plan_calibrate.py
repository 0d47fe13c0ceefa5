"""The search for r̂ among neighbours of r_bal, with stand-ins for the simulation."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentbatch.plan.calibrate import FACTOR, MARGIN, MOST_RATIOS, calibrate


def bowl(best: float, depth: float = 1.0) -> Callable[[float], float]:
    """A makespan that is shortest at `best` and grows with the distance of the logarithms."""
    return lambda ratio: 1000.0 * (1 + depth * math.log(ratio / best) ** 2)


def test_the_balanced_ratio_stays_where_it_is_best() -> None:
    found = calibrate(bowl(0.09), 0.09)
    assert (found.ratio, found.makespan_s, found.balanced_makespan_s) == (0.09, 1000.0, 1000.0)


@pytest.mark.parametrize("steps", [-2, -1.5, -1, -0.5, 0.5, 1, 1.5, 2])
def test_a_better_neighbour_is_found(steps: float) -> None:
    best = 0.09 * FACTOR**steps
    found = calibrate(bowl(best), 0.09)
    assert found.ratio == pytest.approx(best)
    assert found.makespan_s < found.balanced_makespan_s


def test_each_ratio_is_simulated_once_and_reported() -> None:
    asked: list[float] = []
    told: list[tuple[float, float]] = []

    def makespan_of(ratio: float) -> float:
        asked.append(ratio)
        return bowl(0.2)(ratio)

    found = calibrate(makespan_of, 0.09, on_tried=lambda ratio, makespan_s: told.append((ratio, makespan_s)))
    assert len(asked) == len(set(asked)) == MOST_RATIOS
    assert asked[0] == 0.09
    assert [ratio for ratio, _ in told] == asked
    assert sorted(told) == list(found.tried)


def test_a_gain_within_the_margin_does_not_move_the_ratio() -> None:
    def flat(ratio: float) -> float:
        return 1000.0 if ratio == 0.09 else 1000.0 * (1 - MARGIN / 2)

    assert calibrate(flat, 0.09).ratio == 0.09


def test_of_equals_the_nearest_to_the_balance() -> None:
    found = calibrate(lambda ratio: 1000.0 if ratio == 0.09 else 900.0, 0.09)
    assert abs(math.log(found.ratio / 0.09, FACTOR)) == pytest.approx(0.5)


def test_ratios_that_leave_no_room_are_passed_over() -> None:
    found = calibrate(bowl(0.5), 0.09, feasible=lambda ratio: ratio < 0.1)
    assert max(ratio for ratio, _ in found.tried) == 0.09
    assert found.ratio == 0.09


@given(balanced=st.floats(1e-3, 1e3), best=st.floats(1e-3, 1e3))
def test_never_worse_than_the_balance(balanced: float, best: float) -> None:
    found = calibrate(bowl(best), balanced)
    assert found.makespan_s <= found.balanced_makespan_s
    assert (found.ratio, found.makespan_s) in found.tried
    assert found.makespan_s <= min(makespan_s for _, makespan_s in found.tried) / (1 - MARGIN)


def test_makespans_and_ratios_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="makespan_of must give a positive number, not nan"):
        calibrate(lambda ratio: math.nan, 0.09)
    with pytest.raises(ValueError, match="balanced must be a positive number, not 0"):
        calibrate(bowl(1), 0)
