"""Step costs: vectors worked by hand, the tables of cost_model.md, and the closed form against its own sum."""

import math
from dataclasses import fields
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentbatch.errors import UsageError
from agentbatch.sim import DEFAULT_PRESET, PRESETS, StepCost, preset

K = 1024
COST = StepCost(
    decode_base=((1, 10e-3), (11, 20e-3), (21, 25e-3)),
    context_s=1e-6, prefill_step_s=5e-3, prefill_token_s=1e-4, attention_s=1e-8,
)
COSTS = st.builds(
    StepCost,
    decode_base=st.lists(st.tuples(st.integers(2, 300), st.floats(0, 0.1)), max_size=4, unique_by=lambda p: p[0]).map(
        lambda points: ((1, 1e-3), *zip(sorted(p[0] for p in points), sorted(1e-3 + p[1] for p in points), strict=True))
    ),
    context_s=st.sampled_from([0.0, 1e-9, 1e-6]),
    prefill_step_s=st.floats(0, 0.1), prefill_token_s=st.floats(1e-6, 1e-3), attention_s=st.sampled_from([0.0, 1e-10]),
)
TPOT_MS = {
    "h200-tp4-qwen3.5-122b": {
        1: {8: 3.8, 32: 3.9, 64: 4.0}, 32: {8: 13.3, 32: 15.4, 64: 18.5},
        98: {8: 20.1, 32: 26.9, 64: 35.9}, 196: {8: 27.1, 32: 40.1, 64: 58.4},
    },
    "h200-tp4-kda-mla": {
        1: {4: 4.4, 32: 4.5, 64: 4.6, 128: 4.8}, 32: {4: 9.3, 32: 11.0, 64: 12.9, 128: 16.6},
        98: {4: 19.2, 32: 24.3, 64: 30.2, 128: 42.7}, 196: {4: 23.4, 32: 33.7, 64: 45.6, 128: 70.7},
    },
}
TTFT_MS = {
    "h200-tp4-qwen3.5-122b": [(32 * K, 0, 663), (16 * K, 16 * K, 352), (2 * K, 30 * K, 62), (64, 32 * K - 64, 38)],
    "h200-tp4-kda-mla": [
        (8 * K, 0, 145), (32 * K, 0, 552), (64 * K, 0, 1261), (4096, 61_440, 132), (1024, 64_512, 49),
    ],
}


@pytest.mark.parametrize(
    ("batch", "context", "steps", "seconds"),
    [
        (1, 0, 1, 10e-3),
        (6, 0, 1, 15e-3),  # halfway between the first two points
        (16, 0, 1, 22.5e-3),
        (31, 0, 1, 30e-3),  # the last slope goes on
        (1, 1000, 1, 11e-3),
        (1, 1000, 3, 30e-3 + 1e-6 * (1000 + 1001 + 1002)),
        (11, 5000, 2, 40e-3 + 1e-6 * (5000 + 5011)),
        (11, 5000, 0, 0.0),
    ],
)
def test_decode_by_hand(batch: int, context: int, steps: int, seconds: float) -> None:
    assert COST.decode_s(batch, context, steps) == pytest.approx(seconds, rel=1e-12)


def test_prefill_by_hand() -> None:
    # 5 ms + 300 tokens x 0.1 ms + pairs (100 x 50 + 200 x (1000 + 100)) x 10 ns
    assert COST.prefill_s([(100, 0), (200, 1000)]) == pytest.approx(5e-3 + 30e-3 + 225_000 * 1e-8, rel=1e-12)


def test_fastest_turn_by_hand() -> None:
    # two prefill steps, then two decode steps at contexts 151 and 152
    seconds = 2 * 5e-3 + 100e-4 + 100 * (50 + 50) * 1e-8 + 2 * 10e-3 + (151 + 152) * 1e-6
    assert COST.fastest_turn_s(100, 50, 3, chunk_tokens=64) == pytest.approx(seconds, rel=1e-12)


def test_least_work_by_hand() -> None:
    # a prefill step shared by 1000 tokens; a decode step shared by 21 requests, the best corner
    seconds = 5e-3 / 10 + 100e-4 + 100 * 50 * 1e-8 + 2 * 25e-3 / 21 + (101 + 102) * 1e-6
    assert COST.least_work_s(100, 0, 3, max_batch=21, chunk_tokens=1000) == pytest.approx(seconds, rel=1e-12)


@given(COSTS, st.integers(1, 400), st.integers(0, 10**6), st.integers(0, 300))
def test_a_stretch_is_the_sum_of_its_steps(cost: StepCost, batch: int, context: int, steps: int) -> None:
    each = (cost.decode_s(batch, context + batch * step) for step in range(steps))
    assert cost.decode_s(batch, context, steps) == pytest.approx(math.fsum(each), rel=1e-9)


@given(COSTS, st.integers(1, 400), st.integers(0, 10**6), st.floats(0, 1e4))
def test_steps_by_inverts_the_stretch(cost: StepCost, batch: int, context: int, elapsed_s: float) -> None:
    steps = cost.decode_steps_by(batch, context, elapsed_s)
    assert cost.decode_s(batch, context, steps) <= elapsed_s < cost.decode_s(batch, context, steps + 1)


@given(COSTS, st.integers(1, 400), st.integers(0, 10**6), st.integers(0, 5000))
def test_the_end_of_a_step_counts_as_done(cost: StepCost, batch: int, context: int, steps: int) -> None:
    assert cost.decode_steps_by(batch, context, cost.decode_s(batch, context, steps)) == steps


@given(
    COSTS, st.integers(1, 10**5), st.integers(0, 10**5), st.integers(1, 500), st.integers(1, 300),
    st.integers(1, 20_000),
)
def test_least_work_is_never_above_the_time_alone(
    cost: StepCost, new: int, cached: int, output: int, batch: int, chunk: int
) -> None:
    least_s = cost.least_work_s(new, cached, output, max_batch=batch, chunk_tokens=chunk)
    assert least_s <= cost.fastest_turn_s(new, cached, output, chunk_tokens=chunk) * (1 + 1e-9)


@given(COSTS, st.integers(1, 300), st.integers(1, 300))
def test_no_batch_decodes_cheaper_per_request(cost: StepCost, batch: int, max_batch: int) -> None:
    one = cost.least_work_s(1, 0, 2, max_batch=max_batch, chunk_tokens=1)
    without_decode = cost.least_work_s(1, 0, 1, max_batch=max_batch, chunk_tokens=1)
    size = min(batch, max_batch)
    assert one - without_decode <= cost.decode_s(size, 2 * size) / size * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize(("name", "tolerance"), [("h200-tp4-qwen3.5-122b", 0.01), ("h200-tp4-kda-mla", 0.03)])
def test_decode_gives_the_table(name: str, tolerance: float) -> None:
    cost = preset(name).cost
    for batch, row in TPOT_MS[name].items():
        for context, ms in row.items():
            assert cost.decode_s(batch, batch * context * K) * 1e3 == pytest.approx(ms, rel=tolerance)


@pytest.mark.parametrize(("name", "tolerance"), [("h200-tp4-qwen3.5-122b", 0.08), ("h200-tp4-kda-mla", 0.09)])
def test_prefill_gives_the_table(name: str, tolerance: float) -> None:
    cost = preset(name).cost
    for new, cached, ms in TTFT_MS[name]:
        assert cost.fastest_turn_s(new, cached, 1, chunk_tokens=8192) * 1e3 == pytest.approx(ms, rel=tolerance)


def test_the_default_preset_gives_the_papers_live_tpot() -> None:
    cost = PRESETS[DEFAULT_PRESET].cost
    for ms, low, high in ((28.6, 20, 21), (41.8, 38, 39)):  # 20.5 and 38.5 requests on each of two workers
        mean_s = (cost.decode_s(low, low * 39_000) + cost.decode_s(high, high * 39_000)) / 2
        assert mean_s * 1e3 == pytest.approx(ms, rel=1e-6)


def test_the_default_preset_scales_the_h200_by_specification() -> None:
    h20, h200 = PRESETS[DEFAULT_PRESET].cost, preset("h200-tp4-kda-mla").cost
    compute, bandwidth = 989 / 148, 4.8 / 4.0
    assert h20.context_s == pytest.approx(h200.context_s * bandwidth)
    assert h20.prefill_step_s == pytest.approx(h200.prefill_step_s * bandwidth)
    assert h20.prefill_token_s == pytest.approx(h200.prefill_token_s * compute)
    assert h20.attention_s == pytest.approx(h200.attention_s * compute)
    assert "two workers" in PRESETS[DEFAULT_PRESET].sources["decode_base"]  # what the readings were taken for


@pytest.mark.parametrize(("batch", "ms"), [(98, 85), (41, 44)])
def test_steps_of_the_default_preset_by_hand(batch: int, ms: float) -> None:
    # 28.6 + (41.8 - 28.6) / (38.5 - 20.5) · (batch - 20.5), at a mean context of 39k
    assert PRESETS[DEFAULT_PRESET].cost.decode_s(batch, batch * 39_000) * 1e3 == pytest.approx(ms, abs=0.5)


def test_pools_of_the_default_preset() -> None:
    ling = PRESETS[DEFAULT_PRESET]
    assert ling.provenance == "estimated"
    assert ling.kv_tokens == 7_963_812  # 70e9 / 1.09 / 8064
    assert ling.state_slots == 304  # 70e9 · 0.09 / 1.09 / 19e6
    assert ling.config().max_running == 101  # three slots each; the paper says 98 at r = 0.0858


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_says_where_its_figures_come_from(name: str) -> None:
    entry = PRESETS[name]
    assert entry.name == name
    assert entry.provenance in ("modelled", "estimated")
    said = {figure for names in entry.sources for figure in names.split(", ")}
    sizes = {"cache_bytes", "kv_bytes", "state_bytes", "cache_ratio", "context_tokens", "slots_per_request"}
    assert said == sizes | {field.name for field in fields(StepCost)}
    assert all(a[1] < b[1] for a, b in pairwise(entry.cost.decode_base))


@pytest.mark.parametrize(
    "change",
    [
        {"decode_base": ()}, {"decode_base": ((2, 1e-3),)}, {"decode_base": ((1, 0.0),)},
        {"decode_base": ((1, 2e-3), (5, 1e-3))}, {"decode_base": ((1, 1e-3), (1, 2e-3))},
        {"context_s": -1e-9}, {"prefill_token_s": 0.0}, {"attention_s": math.inf}, {"prefill_step_s": -1.0},
    ],
)
def test_bad_coefficients_are_refused(change: dict[str, object]) -> None:
    good = {"decode_base": ((1, 1e-3),), "context_s": 0.0, "prefill_step_s": 0.0, "prefill_token_s": 1e-6,
            "attention_s": 0.0}
    with pytest.raises(UsageError):
        StepCost(**{**good, **change})  # type: ignore[arg-type]


def test_an_unknown_preset_names_those_there_are() -> None:
    with pytest.raises(UsageError, match=DEFAULT_PRESET):
        preset("h100")
