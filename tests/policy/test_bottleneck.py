"""The verdict on a stretch of time: bounds by hand, and what holds for any stretch."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentbatch.policy.bottleneck import TimeSpent, find_bottleneck

SECONDS = st.floats(0, 1e6).map(lambda s: 0.0 if s < 1e-3 else s)
NAMES = ("a", "b")


@st.composite
def stretches(draw: st.DrawFn) -> TimeSpent:
    """A stretch that can have been: no resource is held for longer than it has slots."""
    span_s = draw(st.floats(1, 1e5))
    ce = {name: draw(st.integers(1, 9)) for name in NAMES}
    return TimeSpent(
        span_s=span_s,
        inference_s=draw(SECONDS),
        environment_s=draw(SECONDS),
        harness_s=draw(SECONDS),
        waiting_s={name: draw(SECONDS) for name in NAMES},
        held_s={name: draw(st.floats(0, 1)) * ce[name] * span_s for name in NAMES},
        queued_s=draw(st.floats(0, 1)) * span_s,
        cs=draw(st.integers(1, 99)),
        ce=ce,
        completions=9,
        elasticity=draw(st.none() | st.floats(0, 1)),
    )


def slack(spent: TimeSpent, name: str) -> float:
    held_s = spent.held_s[name]
    return spent.ce[name] * spent.span_s / held_s - 1 if held_s else math.inf


@given(stretches())
def test_shares_add_up_and_gains_are_limited_by_the_other_bounds(spent: TimeSpent) -> None:
    found = find_bottleneck(spent)
    if found.kind == "unknown":
        assert spent.active_s == 0
        return
    assert math.fsum(found.shares.values()) == pytest.approx(1.0)
    assert 0 <= found.gain["cs"] <= min(1 / spent.cs, *(slack(spent, name) for name in NAMES)) + 1e-9
    for name, other in (("a", "b"), ("b", "a")):
        share = found.shares[f"waiting:{name}"]
        lost = share / (1 - share) if share < 1 else math.inf
        assert 0 <= found.gain[f"ce:{name}"] <= min(1 / spent.ce[name], lost, max(0.0, slack(spent, other))) + 1e-9


@given(stretches())
def test_a_limit_that_nobody_waits_for_is_worth_nothing_more(spent: TimeSpent) -> None:
    idle = find_bottleneck(replace(spent, waiting_s={**spent.waiting_s, "a": 0.0}, queued_s=0.0))
    assert idle.gain.get("cs", 0.0) == idle.gain.get("ce:a", 0.0) == 0
    assert idle.name not in ("cs", "ce:a", "harness")


@given(stretches())
def test_where_a_resource_is_always_busy_only_its_slots_are_worth_anything(spent: TimeSpent) -> None:
    full = replace(spent, held_s={**spent.held_s, "a": spent.ce["a"] * spent.span_s})
    found = find_bottleneck(full)
    assert found.gain.get("cs", 0.0) == found.gain.get("ce:b", 0.0) == pytest.approx(0.0)


@given(stretches(), st.integers(-3, 6).map(lambda power: 2.0**power))
def test_the_verdict_is_the_same_in_other_units(spent: TimeSpent, factor: float) -> None:
    """Powers of two, so that nothing rounds; what is known does not depend on the unit where enough has ended."""
    times = ("span_s", "inference_s", "environment_s", "harness_s", "queued_s")
    maps = ("waiting_s", "held_s")
    scaled: dict[str, Any] = {name: factor * getattr(spent, name) for name in times}
    scaled |= {name: {key: factor * value for key, value in getattr(spent, name).items()} for name in maps}
    assert find_bottleneck(replace(spent, **scaled)) == find_bottleneck(spent)


@given(stretches(), st.floats(0, 1))
def test_elasticity_never_adds_to_a_gain(spent: TimeSpent, elasticity: float) -> None:
    without = find_bottleneck(replace(spent, elasticity=None)).gain
    slowed = find_bottleneck(replace(spent, elasticity=elasticity)).gain
    assert all(slowed[name] <= without[name] for name in without)


BUSY: dict[str, Any] = {"span_s": 100.0, "cs": 4, "ce": {"default": 1}, "queued_s": 100.0, "completions": 40}


@pytest.mark.parametrize(
    ("spent", "name", "short", "sentence"),
    [
        (
            {"inference_s": 64, "waiting_s": {"default": 236}, "environment_s": 100, "held_s": {"default": 100.0}},
            "ce:default", "CE default +100 %",
            "CE 'default' binds: 59 % of active time is spent waiting for it; one more slot is worth up to +100 % "
            "throughput",
        ),
        (
            {"inference_s": 380, "environment_s": 20, "held_s": {"default": 20.0}}, "cs", "CS +25 %",
            "CS binds: others wait for admission, and 95 % of active time is inference; one more slot is worth up to "
            "+25 % throughput",
        ),
        (
            {"inference_s": 380, "environment_s": 20, "held_s": {"default": 20.0}, "elasticity": 0.9},
            "inference", "inference",
            "inference binds: it is 95 % of active time, and turns slow down as more are in flight (elasticity 0.90); "
            "another CS slot is worth up to +3 %",
        ),
        (
            {"inference_s": 100, "harness_s": 300}, "harness", "harness",
            "the harness binds: 75 % of active time is neither a turn nor an environment job; another CS slot is worth "
            "up to +25 %, if the harness is idle then",
        ),
        (
            {"inference_s": 100, "queued_s": 0.0}, "trajectories", "few left",
            "no limit binds for most of the time, and the longest chains decide; 100 % of active time is "
            "inference",
        ),
        ({"inference_s": 9, "span_s": 9.0, "completions": 2}, "unknown", "", "not known yet: too little has run"),
        ({}, "unknown", "", "not known yet: too little has run"),
    ],
)  # fmt: skip
def test_verdicts_by_hand(spent: dict[str, Any], name: str, short: str, sentence: str) -> None:
    found = find_bottleneck(TimeSpent(**{**BUSY, **spent}))
    assert (found.name, found.short, found.sentence) == (name, short, sentence)


def test_a_resource_that_is_full_with_nobody_waiting_does_not_bind() -> None:
    full = TimeSpent(span_s=100.0, environment_s=100.0, held_s={"default": 100.0}, cs=1, ce={"default": 1})
    assert find_bottleneck(full).kind == "trajectories"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"inference_s": -1.0}, "inference_s must be finite and 0 or more"),
        ({"waiting_s": {"a": math.nan}}, "waiting_s\\['a'\\] must be finite"),
        ({"cs": 0}, "limits must be 1 or more"),
    ],
)
def test_figures_that_cannot_be_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TimeSpent(**{"span_s": 1.0, **fields})
