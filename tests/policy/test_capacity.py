"""The capacity model against the published figures (spec §6, §9) and as properties."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agentbatch.policy.capacity import (
    Footprint,
    balanced_capacity,
    balanced_ratio,
    capacity,
    footprint,
    pool_sizes,
    reference_concurrency,
    split,
    whole,
)

MEMORY = 70e9
STATE_FOOTPRINT = MEMORY / 1240.5
"""F_state that makes M / F_state = 1240.5, as the paper's SWE and BFCL figures have it (sglang.md)."""

sizes = st.floats(min_value=1e3, max_value=1e12)
ratios = st.floats(min_value=1e-4, max_value=1e4)


@pytest.mark.parametrize(("r_bal", "exact", "floor"), [(0.0858, 98.02, 98), (2.26, 859.98, 859)])
def test_published_capacities(r_bal: float, exact: float, floor: int) -> None:
    need = Footprint(kv_bytes=STATE_FOOTPRINT / r_bal, state_bytes=STATE_FOOTPRINT)
    assert balanced_ratio(need) == pytest.approx(r_bal)
    assert balanced_capacity(MEMORY, need) == pytest.approx(exact, abs=0.006)
    assert capacity(MEMORY, r_bal, need).whole == floor
    assert reference_concurrency(2, capacity(MEMORY, r_bal, need).trajectories) == 2 * floor


@pytest.mark.parametrize(("r_bal", "capacity_at_default", "pool"), [(0.0858, 56.02, "kv"), (2.26, 587.61, "state")])
def test_the_default_ratio_starves_one_pool(r_bal: float, capacity_at_default: float, pool: str) -> None:
    """Cases 47 (sglang#25993, #31643): SGLang's 0.9 fits neither of the two published workloads."""
    need = Footprint(kv_bytes=STATE_FOOTPRINT / r_bal, state_bytes=STATE_FOOTPRINT)
    at_default = capacity(MEMORY, 0.9, need)
    assert at_default.trajectories == pytest.approx(capacity_at_default, abs=0.006)
    assert at_default.limited_by == pool


def test_footprint_counts_a_state_once_per_context() -> None:
    need = footprint(l_kv_tokens=1000, c_kv_bytes=8064, s_state=3, c_state_bytes=43_417_600, contexts=2)
    assert need == Footprint(kv_bytes=8_064_000, state_bytes=260_505_600)


def test_without_states_kv_alone_decides() -> None:
    need = footprint(l_kv_tokens=1000, c_kv_bytes=100)
    held = capacity(1e6, 0, need)
    assert (held.kv, held.state, held.whole, held.limited_by) == (10.0, math.inf, 10, "kv")
    assert balanced_ratio(need) == 0


@given(memory=sizes, ratio=ratios)
def test_the_parts_of_a_split_have_that_ratio_and_that_sum(memory: float, ratio: float) -> None:
    pools = split(memory, ratio)
    assert pools.state_bytes / pools.kv_bytes == pytest.approx(ratio)
    assert pools.state_bytes + pools.kv_bytes == pytest.approx(memory)


@given(memory=sizes, kv=sizes, state=sizes, ratio=ratios)
def test_no_ratio_holds_more_than_the_balanced_one(memory: float, kv: float, state: float, ratio: float) -> None:
    need = Footprint(kv_bytes=kv, state_bytes=state)
    best = balanced_capacity(memory, need)
    at_balance = capacity(memory, balanced_ratio(need), need)
    assert at_balance.kv == pytest.approx(at_balance.state) == pytest.approx(best)
    assert capacity(memory, ratio, need).trajectories <= best * (1 + 1e-9)


@given(kv=sizes, state=sizes, ratio=ratios)
def test_too_small_a_ratio_starves_states_and_too_large_a_one_starves_kv(kv: float, state: float, ratio: float) -> None:
    need = Footprint(kv_bytes=kv, state_bytes=state)
    assume(abs(ratio / balanced_ratio(need) - 1) > 1e-6)
    held = capacity(1e12, ratio, need)
    assert held.limited_by == ("state" if ratio < balanced_ratio(need) else "kv")
    assert held.trajectories == min(held.kv, held.state)


@given(count=st.integers(1, 10**6), kv=st.integers(1, 10**9), state=st.integers(0, 10**9))
def test_memory_for_exactly_n_holds_n(count: int, kv: int, state: int) -> None:
    need = Footprint(kv_bytes=kv, state_bytes=state)
    assert whole(balanced_capacity(count * (kv + state), need)) == count


def test_pools_of_sglang() -> None:
    """Case 48 (sglang#37066): one slot of the state budget is padding, so C x S states do not fit into C's memory."""
    state, token = 43_417_600, 8_064
    pools = pool_sizes(40 * state, 1.0, c_kv_bytes=token, c_state_bytes=state)
    assert pools.state_slots == 19
    assert pools.kv_tokens == 20 * state // token
    pinned = pool_sizes(40 * state, 1.0, c_kv_bytes=token, c_state_bytes=state, state_slots=21)
    assert (pinned.state_slots, pinned.kv_tokens) == (21, 18 * state // token)


@given(memory=sizes, ratio=ratios, token=st.integers(1, 10**6), state=st.integers(1, 10**9))
def test_sglangs_pools_fit_and_leave_nothing(memory: float, ratio: float, token: int, state: int) -> None:
    pools = pool_sizes(memory, ratio, c_kv_bytes=token, c_state_bytes=state)
    used = (pools.state_slots + 1) * state + pools.kv_tokens * token
    assert memory * (1 + 1e-9) >= used
    assert memory - used < token + 1e-9 * memory
    assert (pools.state_slots + 1) * state <= split(memory, ratio).state_bytes * (1 + 1e-9)


@pytest.mark.parametrize("memory", [0, -1.0, math.inf, math.nan])
def test_memory_that_cannot_be(memory: float) -> None:
    with pytest.raises(ValueError, match="memory_bytes must be a positive number"):
        split(memory, 1.0)


@pytest.mark.parametrize("ratio", [-0.1, math.inf, math.nan])
def test_ratios_that_cannot_be(ratio: float) -> None:
    with pytest.raises(ValueError, match="a ratio must be finite and 0 or more"):
        split(1e9, ratio)


@pytest.mark.parametrize(("kv", "state", "said"), [(0, 1, "kv_bytes"), (1, -1, "state_bytes"), (math.nan, 1, "kv_")])
def test_footprints_that_cannot_be(kv: float, state: float, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Footprint(kv_bytes=kv, state_bytes=state)
