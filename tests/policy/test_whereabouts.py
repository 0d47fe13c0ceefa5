"""Where trajectories spend their time, against a count by small steps; how turns slow down, against the truth."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentbatch.policy.elasticity import Elasticity
from agentbatch.policy.whereabouts import Whereabouts

CE = {"a": 2, "b": 1}


def test_states_go_before_one_another() -> None:
    whereabouts = Whereabouts(CE)
    place = whereabouts.place()
    place.enter(1.0)
    mark = place.turn_began(2.0)
    place.job_asked("a", 3.0)
    place.turn_ended(mark, 2.0, 5.0, None, True)  # waits for "a" from here on
    place.job_granted("a", 6.0)
    place.job_asked("b", 7.0)  # holds a slot all the same
    place.job_ended("a", 9.0)
    place.job_withdrew("b", 10.0)
    place.leave(12.0)
    spent = whereabouts.spent(20.0, 4, CE)
    assert (spent.inference_s, spent.environment_s, spent.harness_s, spent.span_s) == (3.0, 3.0, 3.0, 11.0)
    assert spent.waiting_s == {"a": 1.0, "b": 1.0}
    assert spent.held_s == {"a": 3.0, "b": 0.0}
    assert spent.completions == 2
    assert repr(whereabouts) == "<Whereabouts inference=0 environment=0 waiting=0 harness=0>"


def test_a_grant_told_late_counts_from_when_it_was_made() -> None:
    whereabouts = Whereabouts(CE)
    first, second = whereabouts.place(), whereabouts.place()
    for place in (first, second):
        place.enter(0.0)
        place.job_asked("b", 0.0)
    first.job_granted("b", 0.0)
    first.job_ended("b", 4.0)
    second.job_granted("b", 4.0)  # its task woke later
    second.job_ended("b", 9.0)
    assert whereabouts.spent(9.0, 4, CE).held_s["b"] == 9.0


def test_a_job_that_outlives_its_trajectory_holds_on_to_its_slot_only() -> None:
    whereabouts = Whereabouts(CE)
    place = whereabouts.place()
    place.enter(0.0)
    place.job_asked("a", 0.0)
    place.job_granted("a", 0.0)
    place.leave(3.0)
    place.leave(4.0)  # a second time changes nothing
    place.job_ended("a", 10.0)
    spent = whereabouts.spent(10.0, 4, CE)
    assert (spent.environment_s, spent.held_s["a"], spent.active_s, spent.span_s) == (3.0, 10.0, 3.0, 3.0)


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0.01, 30)), max_size=80), st.floats(1, 100))
def test_a_window_is_the_end_of_the_whole(steps: list[tuple[int, float]], window_s: float) -> None:
    """Turns that follow one another without a gap: a window holds its own length of them, whenever it is looked at."""
    whereabouts = Whereabouts(CE, window_s=window_s)
    places = [whereabouts.place() for _ in range(4)]
    for place in places:
        place.enter(0.0)
    marks = [place.turn_began(0.0) for place in places]
    now_s = 0.0
    for who, seconds in steps:
        now_s += seconds
        places[who].turn_ended(marks[who], now_s - seconds, now_s, None, False)
        marks[who] = places[who].turn_began(now_s)
        window = whereabouts.spent(now_s, 4, CE, window=True)
        assert window.span_s == pytest.approx(min(now_s, window_s))
        assert window.inference_s == pytest.approx(4 * min(now_s, window_s))
        assert whereabouts.spent(now_s, 4, CE).inference_s == pytest.approx(4 * now_s)
    assert len(whereabouts._marks) <= 14


def test_the_window_forgets_what_came_before_it() -> None:
    whereabouts = Whereabouts(CE, window_s=60.0)
    place = whereabouts.place()
    place.enter(0.0)
    for at_s in range(100):
        place.turn_ended(place.turn_began(float(at_s)), at_s, at_s + 1.0, None, True)
    for at_s in range(100, 200):
        place.job_asked("a", float(at_s))
        place.job_granted("a", float(at_s))
        place.job_ended("a", at_s + 1.0)
    now = whereabouts.bottleneck(200.0, 4, CE, window=True)
    assert (now.shares["inference"], now.shares["environment"]) == (0.0, 1.0)
    whole = whereabouts.bottleneck(200.0, 4, CE)
    assert (whole.shares["inference"], whole.shares["environment"]) == (0.5, 0.5)


@pytest.mark.parametrize("true", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("tokens", [True, False])
def test_elasticity_is_found_under_noise_and_never_overstated_much(true: float, tokens: bool) -> None:
    source = random.Random(f"{true}{tokens}")
    estimate = Elasticity()
    assert estimate.value() is None
    for _ in range(400):
        in_flight, output = source.uniform(2, 30), source.randint(10, 1000)
        seconds = in_flight**true * (output / 100 if tokens else 1) * source.lognormvariate(0, 0.3)
        estimate.add(seconds, in_flight, output if tokens else None)
    found = estimate.value()
    assert found is not None
    assert true - 0.15 <= found <= true + 0.05


def test_elasticity_is_unknown_where_the_load_does_not_change_or_noise_drowns_it() -> None:
    steady, noisy = Elasticity(), Elasticity()
    source = random.Random(1)
    for _ in range(100):
        steady.add(source.uniform(1, 9), 8.0, None)
        noisy.add(source.lognormvariate(0, 3), source.uniform(6, 10), None)
    steady.add(0.0, 1.0, None)  # says nothing
    assert steady.value() is None
    assert noisy.value() is None
