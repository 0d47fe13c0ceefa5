"""The order of admission: as submitted, or the longest expected first."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentbatch.policy.admission import AdmissionOrder, median

PROFILES = st.dictionaries(st.text(max_size=3), st.floats(0, 1e9), min_size=1, max_size=30)
KEYS = st.lists(st.text(max_size=3), max_size=40)


@given(keys=KEYS)
def test_fifo_is_the_order_of_submission(keys: list[str]) -> None:
    order = AdmissionOrder()
    made = [order.key(key, entry) for entry, key in enumerate(keys)]
    assert sorted(made) == made
    assert (order.expected_s("any"), order.unknown(keys)) == (0.0, 0)


@given(profile=PROFILES, keys=KEYS)
def test_longest_first_with_unknown_keys_at_the_median(profile: dict[str, float], keys: list[str]) -> None:
    order = AdmissionOrder("longest-first", profile)
    middle = statistics.median(profile.values())
    assert order.unknown_s == median(profile.values())
    assert math.isclose(order.unknown_s, middle, abs_tol=1e-300)
    queue = sorted(range(len(keys)), key=lambda entry: order.key(keys[entry], entry))
    wanted = sorted(range(len(keys)), key=lambda entry: -profile.get(keys[entry], order.unknown_s))  # stable
    assert queue == wanted
    assert order.unknown(keys) == sum(key not in profile for key in keys)


def test_by_hand() -> None:
    order = AdmissionOrder("longest-first", {"a": 10.0, "b": 40, "c": 20.0, "d": 30.0})
    assert order.key("b", 7) == (-40, 7)
    assert order.key("new", 3) == (-25.0, 3)  # between the middle two
    assert AdmissionOrder("longest-first", {"a": 10.0, "b": 40.0, "c": 20.0}).key("new", 3) == (-20.0, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("lifo", None), "choose 'fifo' or 'longest-first'"),
        (("longest-first", None), "longest-first needs a profile"),
        (("fifo", {"a": 1.0}), "a profile is of no use to 'fifo'"),
        (("longest-first", {}), "the profile is empty"),
        (("longest-first", {"a": -1.0}), "finite and 0 or more, not -1.0 for 'a'"),
        (("longest-first", {"a": 1.0, "b": math.nan}), "not nan for 'b'"),
        (("longest-first", {"a": math.inf}), "not inf for 'a'"),
        (("longest-first", {"a": 10**400}), "not 1000000"),
        (("longest-first", {"a": True}), "not True for 'a'"),
        (("longest-first", {"a": "7"}), "not '7' for 'a'"),
    ],
)
def test_what_is_refused(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AdmissionOrder(*arguments)


def test_the_median_of_nothing_and_of_the_largest() -> None:
    with pytest.raises(ValueError, match="not defined"):
        median([])
    assert median([1e308, 1.7e308]) == 1.35e308
