"""Whole parts of a total, and log-normal weights: properties, and vectors worked by hand."""

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentbatch.workloads.draws import CUT, apportion, weights


@pytest.mark.parametrize(
    ("total", "shares", "least", "parts"),
    [
        (10, [1, 1, 2], 0, [3, 2, 5]),  # 2.5, 2.5, 5: the tie goes to the first
        (10, [1, 1, 2], 1, [3, 3, 4]),  # seven left: 1.75, 1.75, 3.5
        (3, [5, 1, 1], 1, [1, 1, 1]),
        (7, [0.3], 1, [7]),
    ],
)
def test_parts_by_hand(total: int, shares: list[float], least: int, parts: list[int]) -> None:
    assert apportion(total, shares, least=least) == parts


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=200), st.integers(0, 10**7), st.integers(0, 2))
def test_parts_add_up_and_stay_within_one_of_their_share(shares: list[float], extra: int, least: int) -> None:
    parts = apportion(extra + least * len(shares), shares, least=least)
    assert sum(parts) == extra + least * len(shares)
    scale = extra / math.fsum(shares)
    for part, share in zip(parts, shares, strict=True):
        assert least <= part
        assert abs(part - least - share * scale) < 1 + 1e-6


def test_weights_spread_as_asked() -> None:
    groups = [50] * 3000
    drawn = weights(random.Random("spread"), groups, between=0.5, within=1.0)
    logs = [[math.log(weight) for weight in drawn[at : at + 50]] for at in range(0, len(drawn), 50)]
    # moved to its 1st and 99th percentile, a standard normal has a deviation of 0.982; a sample of 50 has 1.5 % less
    within = statistics.fmean(statistics.pstdev(group) for group in logs)
    means = statistics.pstdev([statistics.fmean(group) for group in logs])
    assert within == pytest.approx(0.967, rel=0.005)
    assert math.sqrt(means**2 - within**2 / 50) == pytest.approx(0.982 * 0.5, rel=0.04)
    assert max(map(max, logs)) <= 1.5 * CUT + 1e-9


def test_an_empty_group_draws_no_weight() -> None:
    assert len(weights(random.Random(1), [0, 2, 0], between=1.0, within=1.0)) == 2
