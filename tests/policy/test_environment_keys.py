"""What goes beyond the paper in the order of environment jobs: "depth", "slow-step", bands that follow the wait."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentbatch.policy.bands import GRANTS, FollowingBands
from agentbatch.policy.caas import (
    BAND_S,
    DEPTH_BAND_S,
    EnvironmentOrder,
    EnvironmentPolicy,
    Progress,
    depth_key,
    slow_step_key,
)
from agentbatch.policy.slots import SlotTable

POLICIES: tuple[EnvironmentPolicy, ...] = ("caas", "fcfs", "depth", "slow-step")
SECONDS = st.floats(0, 1e6)
CHAINS = st.builds(Progress, st.integers(0, 300), SECONDS, SECONDS).map(
    lambda one: one if one.turns else Progress(0, 0.0, one.environment_seconds)
)
GAPS = st.lists(st.floats(0, 500), min_size=1, max_size=60)


def asking_times(gaps: list[float]) -> list[float]:
    asked, now = [], 0.0
    for gap in gaps:
        now += gap
        asked.append(now)
    return asked


@given(chains=st.lists(st.tuples(CHAINS, st.floats(0, 100), SECONDS), min_size=1, max_size=40))
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("band_s", [30.0, "auto", None])
def test_keys_are_a_total_order_and_do_not_change(policy: EnvironmentPolicy, band_s: float, chains: list) -> None:
    """Each job gets a place of its own among all others, and the same again from another object told the same."""

    def played() -> list[tuple[float, ...]]:
        keys = EnvironmentOrder(policy, band_s).keys()
        made, now = [], 0.0
        for entry, (progress, gap_s, wait_s) in enumerate(chains):
            now += gap_s
            made.append(keys.key(progress, now, entry))
            keys.granted(wait_s)
        return made

    made = played()
    assert len({len(key) for key in made}) == 1
    assert len(set(made)) == len(made)
    assert all(one < other or other < one for one in made for other in made if one is not other)
    assert made == played()


@given(one=CHAINS, other=CHAINS)
def test_depth_puts_the_deepest_chain_first_whenever_it_asked_in_one_endless_band(
    one: Progress, other: Progress
) -> None:
    keys = EnvironmentOrder("depth", 1e12).keys()
    early, late = keys.key(other, 0.0, 3), keys.key(one, 1e6, 9)
    assert late == depth_key(0, one, 9) == (0, -one.turns, 9)
    assert (late < early) == (one.turns > other.turns)


@given(one=CHAINS, other=CHAINS, band_s=st.floats(1, 1e6))
def test_depth_in_bands_puts_the_deepest_first_of_those_that_asked_in_one(
    one: Progress, other: Progress, band_s: float
) -> None:
    keys = EnvironmentOrder("depth", band_s).keys()
    early, late = keys.key(other, 0.0, 3), keys.key(one, band_s * 0.99, 4)
    assert (late < early) == (one.turns > other.turns)
    assert keys.key(Progress(300, 1.0), band_s, 5) > max(early, late)


def test_depth_alone_has_bands_that_follow_the_wait_and_are_wide_from_the_start() -> None:
    keys = EnvironmentOrder("depth").keys()
    one = Progress(1, 1.0)
    assert [keys.key(one, asked_s, 0)[0] for asked_s in (0.0, 299.9, 300.0, 599.0)] == [0, 0, 1, 1]
    for _ in range(GRANTS):
        keys.granted(1000.0)
    assert [keys.key(one, asked_s, 0)[0] for asked_s in (600.0, 1599.0, 1600.0)] == [2, 2, 3]
    assert "B=1000 s" in repr(keys)


def longest_wait_of_a_shallow_job(band_s: float | None, rounds: int = 400) -> float:
    """One slot, jobs of 60 s, two deep ones always waiting; one that has only begun asks at 1,000 s."""
    keys, slots = EnvironmentOrder("depth", band_s).keys(), SlotTable[str](1)
    now, asked = 0.0, {}
    for entry in range(rounds):
        name = "shallow" if now == 1020.0 else f"deep {entry}"
        asked[name] = now
        depth = 1 if name == "shallow" else 50 + entry
        if slots.request(name, keys.key(Progress(depth, 1.0), now, entry)):
            keys.granted(0.0)
            running = name
        if entry >= 2:
            now += 60.0
            [running] = slots.leave(running)
            keys.granted(now - asked[running])
            if running == "shallow":
                return now - asked["shallow"]
    return math.inf


def test_a_shallow_job_starves_where_the_deepest_always_goes_first_and_does_not_in_bands() -> None:
    assert longest_wait_of_a_shallow_job(1e12) == math.inf
    assert longest_wait_of_a_shallow_job(None) <= DEPTH_BAND_S + 120.0


def test_the_band_in_force_is_the_policys_own_unless_one_is_given() -> None:
    assert [EnvironmentOrder(policy).band_in_force for policy in POLICIES] == [BAND_S, None, "auto", None]
    assert [EnvironmentOrder(policy, 7).band_in_force for policy in POLICIES] == [7, None, 7, None]
    assert [EnvironmentOrder(policy, "auto").band_in_force for policy in POLICIES] == ["auto", None, "auto", None]


def test_slow_step_by_hand() -> None:
    """2 steps of 15 s stand for what is not known yet: (30 + 10 + 20) / (2 + 1) = 20, (30 + 60) / (2 + 4) = 15."""
    progress = Progress()
    assert slow_step_key(progress, 4) == (-15.0, 4)
    progress = progress.completed(10.0).acted(20.0)
    assert slow_step_key(progress, 5) == (-20.0, 5)
    quick = Progress(4, 50.0, 10.0)
    assert slow_step_key(quick, 1) == (-15.0, 1)
    keys = EnvironmentOrder("slow-step").keys()
    assert keys.key(progress, 100.0, 5) < keys.key(quick, 0.0, 1) < keys.key(Progress(), 0.0, 2)


@given(one=CHAINS, other=CHAINS)
def test_slow_step_puts_the_longest_mean_step_first(one: Progress, other: Progress) -> None:
    def mean(chain: Progress) -> Fraction:
        shown = 30 + Fraction(chain.turn_seconds) + Fraction(chain.environment_seconds)
        return shown / (2 + chain.turns)

    first, second = slow_step_key(one, 1), slow_step_key(other, 2)
    if abs(mean(one) - mean(other)) > 1e-6 * max(1, mean(one)):
        assert (first < second) == (mean(one) > mean(other))


@given(n=st.integers(0, 50), spent=SECONDS, held=st.lists(SECONDS, max_size=5))
def test_only_slow_step_looks_at_environment_seconds(n: int, spent: float, held: list[float]) -> None:
    without = Progress(n, spent if n else 0.0)
    shown = without
    for seconds in held:
        shown = shown.acted(seconds)
    assert (shown.turns, shown.turn_seconds) == (without.turns, without.turn_seconds)
    assert math.isclose(shown.environment_seconds, math.fsum(held))
    for policy in ("caas", "fcfs", "depth"):
        keys = EnvironmentOrder(policy).keys()  # type: ignore[arg-type]
        assert keys.key(shown, 7.0, 1) == keys.key(without, 7.0, 1)


@pytest.mark.parametrize("seconds", [-1.0, math.inf, math.nan])
def test_environment_seconds_are_finite_and_not_negative(seconds: float) -> None:
    with pytest.raises(ValueError, match="finite and 0 or more"):
        Progress().acted(seconds)
    with pytest.raises(ValueError, match="environment_seconds"):
        Progress(1, 1.0, seconds)
    with pytest.raises(ValueError, match="a wait must be finite and 0 or more"):
        EnvironmentOrder(band_s="auto").keys().granted(seconds)


@given(gaps=GAPS, waits=st.lists(st.floats(0, BAND_S), max_size=60), chain=CHAINS)
def test_auto_is_the_fixed_band_where_waits_never_widen_it(
    gaps: list[float], waits: list[float], chain: Progress
) -> None:
    fixed, auto = EnvironmentOrder().keys(), EnvironmentOrder(band_s="auto").keys()
    for entry, asked_s in enumerate(asking_times(gaps)):
        assert auto.key(chain, asked_s, entry) == fixed.key(chain, asked_s, entry)
        if entry < len(waits):
            auto.granted(waits[entry])


@given(gaps=GAPS, wait=st.floats(BAND_S, 1000))
def test_auto_is_the_fixed_band_where_b_stays_as_it_is(gaps: list[float], wait: float) -> None:
    """With waits all alike B is that wait, at whichever edge a band opens."""
    auto = EnvironmentOrder(band_s="auto").keys()
    for _ in range(GRANTS):  # before the first band opens
        auto.granted(wait)
    width = FollowingBands(BAND_S)
    for _ in range(GRANTS):
        width.waited(wait)
    fixed = EnvironmentOrder(band_s=width.width_s).keys()
    for entry, asked_s in enumerate(asking_times(gaps)):
        assert auto.key(Progress(1, 1.0), asked_s, entry) == fixed.key(Progress(1, 1.0), asked_s, entry)


@given(steps=st.lists(st.tuples(st.floats(0, 300), st.floats(0, 5000)), min_size=1, max_size=80))
def test_bands_follow_one_another_and_each_keeps_the_b_it_opened_with(steps: list[tuple[float, float]]) -> None:
    bands, now, last = FollowingBands(BAND_S), 0.0, 0
    edges: dict[int, tuple[float, float]] = {}
    opened_with = bands.width_s
    for gap_s, wait_s in steps:
        now += gap_s
        before = bands.width_s
        g = bands.number(now)
        assert g >= last
        if g > last or not edges:
            opened_with = before
        if g in edges:
            assert now - edges[g][0] <= edges[g][1] * (1 + 1e-9)  # within B of the first that asked in it
        else:
            edges[g] = (now, opened_with)
        last = g
        bands.waited(wait_s)
        assert bands.width_s >= BAND_S


def test_a_band_grows_with_the_queue_and_shrinks_when_it_has_run_dry() -> None:
    keys = EnvironmentOrder(band_s="auto").keys()
    one = Progress(1, 1.0)

    def band(asked_s: float) -> float:
        return keys.key(one, asked_s, 0)[0]

    assert [band(0.0), band(29.9)] == [0, 0]
    for _ in range(10):
        keys.granted(100.0)
    assert [band(29.95), band(30.0), band(129.9)] == [0, 1, 1]  # the open band keeps its end; the next is 100 s
    for _ in range(GRANTS):
        keys.granted(0.0)
    assert [band(130.0), band(159.9), band(160.0), band(250.0)] == [2, 2, 3, 6]  # [160, 190), [190, 220), [220, 250)
    assert band(200.0) == 6  # one that asked earlier goes with the band that is open
    assert "6 until 280 s, B=30 s" in repr(keys)


def test_each_resource_has_bands_of_its_own() -> None:
    order = EnvironmentOrder(band_s="auto")
    files, web = order.keys(), order.keys()
    for _ in range(GRANTS):
        files.granted(600.0)
    assert files.key(Progress(), 500.0, 1)[0] == 0
    assert web.key(Progress(), 500.0, 2)[0] == 16


def test_the_mean_decides_since_a_median_would_hide_the_few_that_wait_long() -> None:
    bands = FollowingBands(BAND_S)
    for wait_s in (0.0, 0.0, 0.0, 600.0):
        bands.waited(wait_s)
    assert bands.width_s == 150.0


@pytest.mark.parametrize("band_s", ["Auto", "30", "", True, 10**400])
def test_a_band_is_a_number_or_auto(band_s: object) -> None:
    with pytest.raises(ValueError, match="band_s must be a finite number of seconds above 0 or 'auto'"):
        EnvironmentOrder(band_s=band_s)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="bucket_s must be a finite number of seconds above 0, not 'auto'"):
        EnvironmentOrder(bucket_s="auto")  # type: ignore[arg-type]
