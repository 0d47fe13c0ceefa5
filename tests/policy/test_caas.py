"""CAAS keys: vectors worked by hand from Eq. 13-16, and exactness against fractions."""

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentbatch.policy.caas import EnvironmentOrder, Progress, caas_key, fcfs_key
from agentbatch.policy.slots import SlotTable

SECONDS = st.floats(0, 1e6)
TIMES = st.floats(-1e3, 1e7)
WIDTHS = st.floats(1e-3, 1e6)


@pytest.mark.parametrize(
    ("turns", "asked_s", "entry", "key"),
    [
        ([2.0], 0.0, 1, (0, -1, 2, 1)),
        ([2.0, 3.0], 29.999, 2, (0, -2, 2, 2)),  # mean 2.5
        ([2.0, 4.0], 30.0, 3, (1, -2, 3, 3)),  # the edge belongs to the next band, and to the next bucket
        ([0.25, 0.25, 0.25], 61.5, 4, (2, -3, 0, 4)),
        ([], 12.0, 5, (0, 0, 0, 5)),  # a job before the first turn
        ([], -0.5, 6, (-1, 0, 0, 6)),  # a job before the first admission
        ([1.5] * 40, 3600.0, 7, (120, -40, 1, 7)),
    ],
)
def test_keys_by_hand(turns: list[float], asked_s: float, entry: int, key: tuple[int, ...]) -> None:
    progress = Progress()
    for seconds in turns:
        progress = progress.completed(seconds)
    assert caas_key(progress, asked_s, entry) == key
    assert EnvironmentOrder().keys().key(progress, asked_s, entry) == key
    assert EnvironmentOrder("fcfs").keys().key(progress, asked_s, entry) == fcfs_key(entry) == (entry,)


def test_other_widths() -> None:
    keys = EnvironmentOrder(band_s=0.5, bucket_s=0.25).keys()
    assert keys.key(Progress(4, 3.5), 1.75, 9) == (3, -4, 3, 9)  # 1.75 / 0.5 = 3.5; 0.875 / 0.25 = 3.5


def test_who_goes_first() -> None:
    """Band, then depth, then quicker turns, then arrival: one job decided by each."""
    keys = EnvironmentOrder().keys()
    jobs = {
        "next band, deepest": keys.key(Progress(90, 90.0), 31.0, 0),
        "shallow": keys.key(Progress(1, 0.5), 0.0, 1),
        "deep, slow": keys.key(Progress(5, 25.0), 29.0, 2),
        "deep, quick, late": keys.key(Progress(5, 6.0), 20.0, 4),
        "deep, quick": keys.key(Progress(5, 9.0), 25.0, 3),  # mean 1.8 s: the same bucket as 1.2 s
    }
    table: SlotTable[str] = SlotTable(1)
    table.request("running", keys.key(Progress(), 0.0, 9))
    for name, key in jobs.items():
        table.request(name, key)
    ran = ["running"]
    while granted := table.leave(ran[-1]):
        ran += granted
    assert ran[1:] == ["deep, quick", "deep, quick, late", "deep, slow", "shallow", "next band, deepest"]


@given(n=st.integers(1, 10_000), total=SECONDS, asked=TIMES, band=WIDTHS, bucket=WIDTHS, entry=st.integers(0))
def test_floors_are_exact(n: int, total: float, asked: float, band: float, bucket: float, entry: int) -> None:
    key = EnvironmentOrder("caas", band, bucket).keys().key(Progress(n, total), asked, entry)
    g = math.floor(Fraction(asked) / Fraction(band))
    c = math.floor(Fraction(total) / n / Fraction(bucket))
    assert key == (g, -n, c, entry)


def test_floors_do_not_round_up() -> None:
    """The float 0.1 is above a tenth, so 1.0 holds nine of them and a bit; the float quotient rounds that to ten."""
    assert math.floor(1.0 / 0.1) == 10
    assert caas_key(Progress(1, 1.0), 1.0, 0, band_s=0.1, bucket_s=0.1) == (9, -1, 9, 0)


@given(turns=st.lists(st.integers(0, 4000), min_size=1, max_size=50))
def test_mean_of_exact_durations_is_exact(turns: list[int]) -> None:
    """Durations in 1/1024 s add up without rounding, so the bucket is that of the true mean."""
    progress = Progress()
    for ticks in turns:
        progress = progress.completed(ticks / 1024)
    assert progress.turns == len(turns)
    assert caas_key(progress, 0.0, 0)[2] == sum(turns) // (1024 * len(turns))


def test_a_child_starts_from_its_parent_and_leaves_it_alone() -> None:
    parent = Progress().completed(4.0)
    child = parent.completed(2.0)
    assert (child.turns, child.turn_seconds, child.mean) == (2, 6.0, 3.0)
    assert (parent.turns, parent.mean, Progress().mean) == (1, 4.0, 0.0)
    with pytest.raises(AttributeError):
        parent.turns = 3  # type: ignore[misc]


@given(
    first=st.tuples(st.integers(0, 9), SECONDS, TIMES),
    second=st.tuples(st.integers(0, 9), SECONDS, TIMES),
)
def test_no_job_overtakes_one_of_an_earlier_band(first: Any, second: Any) -> None:
    (n1, s1, a1), (n2, s2, a2) = first, second
    keys = EnvironmentOrder().keys()
    if a1 // 30 < a2 // 30:
        assert keys.key(Progress(n1, s1), a1, 2) < keys.key(Progress(n2, s2), a2, 1)


@pytest.mark.parametrize("width", [0, -1.0, math.inf, math.nan, True])
@pytest.mark.parametrize("name", ["band_s", "bucket_s"])
def test_widths_are_finite_and_positive(name: str, width: float) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a finite number of seconds above 0"):
        EnvironmentOrder(**{name: width})


def test_unknown_policy_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'caas', 'fcfs', 'depth' or 'slow-step'"):
        EnvironmentOrder("lifo")  # type: ignore[arg-type]


@pytest.mark.parametrize("seconds", [-1e-9, math.inf, math.nan])
def test_durations_are_finite_and_not_negative(seconds: float) -> None:
    with pytest.raises(ValueError, match="finite and 0 or more"):
        Progress().completed(seconds)
    with pytest.raises(ValueError, match="turn_seconds"):
        Progress(1, seconds)
    with pytest.raises(ValueError, match="turns must be 0 or more"):
        Progress(-1)


@pytest.mark.parametrize("asked_s", [math.inf, math.nan])
def test_an_asking_time_that_is_no_number_is_refused(asked_s: float) -> None:
    with pytest.raises((ValueError, OverflowError)):
        caas_key(Progress(), asked_s, 0)
