"""From a workload and a deployment to a plan: figures, pools, flags, warnings and refusals (cases 47 and 48)."""

from dataclasses import replace
from typing import Any

import pytest
from plan_configs import KIMI, LING_3, LLAMA, trajectory, turn

from agentbatch.errors import UsageError
from agentbatch.plan.cautions import DEFAULT_RATIO, default_ratio
from agentbatch.plan.config import parse_config
from agentbatch.plan.models import model_sizes
from agentbatch.plan.modes import slots_per_request
from agentbatch.plan.plan import Plan, make_plan, refine
from agentbatch.plan.question import GB, Question
from agentbatch.plan.sizes import Deployment
from agentbatch.plan.split import Split
from agentbatch.policy.capacity import capacity, pool_sizes

SWE_TOKENS, BFCL_TOKENS = 82_365, 3_127
"""Lengths at which Ling-3.0-Flash on TP 4 has the paper's r_bal, 0.0858 and 2.26 (sglang.md infers 78k and 3.1k)."""

LING_GB = 1240.5 * 3 * 18_995_200 / GB
"""M with M / F_state = 1240.5 in no_buffer mode: 70.7 GB."""


def question(config: dict[str, Any] = LING_3, gb: float = LING_GB, tp: int = 4, **fields: Any) -> Question:
    deployment = Deployment(tp=tp)
    defaults = {"workers": 2, "mode": "no_buffer"}
    sizes = model_sizes(parse_config(config), deployment)
    return Question(sizes=sizes, deployment=deployment, memory_bytes=gb * GB, **{**defaults, **fields})


def trace(tokens: int, count: int = 300, **fields: Any) -> list[Any]:
    fields = {"infer_s": 3.0, "env_s": 1.0, **fields}
    turns = turn(tokens // 2, 10, **fields), turn(tokens - 20, 20, infer_s=3.0)
    return [trajectory(f"t{n}", *turns) for n in range(count)]


def planned(tokens: int = SWE_TOKENS, **fields: Any) -> Plan:
    return make_plan(question(**fields), trace(tokens))


def said(plan: Plan, part: str) -> bool:
    return any(part in warning for warning in plan.warnings)


def test_the_papers_figures_for_swe_and_bfcl() -> None:
    swe, bfcl = planned(SWE_TOKENS).to_dict(), planned(BFCL_TOKENS).to_dict()
    assert (round(swe["r_bal"], 4), swe["capacity_per_worker"], swe["cs"]) == (0.0858, 98, 196)
    assert (swe["capacity_per_worker"], swe["label_capacity"]) == (98, 147)
    assert (round(bfcl["r_bal"], 2), bfcl["capacity_per_worker"], bfcl["cs"]) == (2.26, 859, 1718)
    assert (swe["c_kv_bytes"], swe["c_state_bytes"], swe["s_state"]) == (8064, 18_995_200, 3)
    assert swe["r_hat"] == swe["r_bal"]
    assert swe["l_kv_tokens"] == SWE_TOKENS


def test_keys_of_the_issue() -> None:
    keys = [
        "c_kv_bytes", "c_state_bytes", "s_state", "l_kv_tokens", "r_bal", "r_hat", "capacity_per_worker", "cs", "ce",
        "label_capacity", "sglang_args", "gateway_args", "warnings",
    ]  # fmt: skip
    assert [key for key in keys if key not in planned().to_dict()] == []


@pytest.mark.parametrize(
    ("mode", "overlap", "slots"),
    [("no_buffer", True, 3), ("no_buffer", False, 3), ("extra_buffer", True, 5), ("extra_buffer", False, 4),
     ("extra_buffer_lazy", True, 4)],
)  # fmt: skip
def test_slots_per_request(mode: Any, overlap: bool, slots: int) -> None:
    assert slots_per_request(mode, overlap=overlap) == slots
    figures = planned(mode=mode, overlap=overlap).to_dict()
    assert figures["s_state"] == slots
    assert ("--disable-overlap-schedule" in figures["sglang_args"]) == (mode == "no_buffer" or not overlap)


def test_the_lazy_buffer_needs_overlap() -> None:
    with pytest.raises(UsageError, match="extra_buffer_lazy needs the overlap schedule"):
        question(mode="extra_buffer_lazy", overlap=False)


@pytest.mark.parametrize(
    ("tokens", "pool", "held"), [(SWE_TOKENS, "KV cache", "56"), (BFCL_TOKENS, "recurrent-state pool", "587")]
)
def test_the_default_ratio_would_starve_a_pool(tokens: int, pool: str, held: str) -> None:
    """Case 47 (sglang#25993, #31643): both published workloads do badly with 0.9, for opposite reasons."""
    assert said(planned(tokens), f"ratio 0.9 would starve the {pool}: {held} trajectories a worker instead of ")


def test_no_word_on_the_default_ratio_where_it_holds_as_many() -> None:
    plan = planned(round(BFCL_TOKENS * 2.26 / 0.9))
    assert plan.balanced == pytest.approx(0.9, rel=0.001)
    assert not said(plan, "would starve")


def test_no_word_on_the_default_ratio_for_less_than_a_tenth() -> None:
    need = planned().need
    held = capacity(LING_GB * GB, DEFAULT_RATIO, need).whole  # 56
    assert list(default_ratio(LING_GB * GB, need, held + 5)) == []
    assert len(list(default_ratio(LING_GB * GB, need, held + 7))) == 1


def test_calibrate_is_advised_where_there_is_a_ratio_that_was_not_calibrated() -> None:
    shrinking = [trajectory(f"t{n}", turn(60_000, 0), turn(30_000, 0)) for n in range(300)]
    plan = make_plan(question(), shrinking)
    assert said(plan, "compute again; try --calibrate, or a smaller CS")
    calibrated = refine(plan, shrinking, lambda split: 100.0)
    assert said(calibrated, "compute again; try a smaller CS")
    uneven = [*trace(2_000, 50), *trace(60_000, 9)]
    wide = make_plan(question(gb=2), uneven)
    assert said(wide, "compute again; try --calibrate")
    for other in (calibrated, refine(wide, uneven, lambda split: 100.0), make_plan(question(LLAMA, gb=70), uneven)):
        assert not said(other, "--calibrate")


def test_a_lone_chain_of_a_second_is_told_from_all() -> None:
    lone = [*trace(2_000, 300, infer_s=0.0), trajectory("slow", turn(10, 10, infer_s=20.0))]
    plan = make_plan(question(), lone)
    advice = replace(plan.environment, longest_chain_s=1.2, all_chains_s=0.5)
    assert said(replace(plan, environment=advice), "takes 1.2 s, where all of them, CS at a time, need 0.5 s")


def test_a_state_pool_below_c_s_plus_one_is_pinned() -> None:
    """Cases 47 and 48 (sglang#37066): 98 requests of 3 and a spare are 295; the ratio alone makes 293 slots."""
    plan = planned(SWE_TOKENS)
    asked, split = plan.question, plan.split
    alone = pool_sizes(asked.memory_bytes, split.ratio or 0, c_kv_bytes=8064, c_state_bytes=18_995_200)
    assert alone.state_slots == 293
    assert (split.state_slots, split.pinned_state_slots) == (295, 295)
    assert said(plan, "makes 293 state slots, but 98 requests of 3 and one spare take 295: --max-mamba-cache-size 295")
    flags = plan.to_dict()["sglang_args"]
    assert flags[flags.index("--max-mamba-cache-size") + 1] == "295"
    # what the pin takes from KV is two states at most
    assert split.kv_tokens * 8064 >= asked.memory_bytes - 296 * 18_995_200 - 8064


def test_a_pool_that_suffices_is_left_to_the_ratio() -> None:
    plan = planned(BFCL_TOKENS)  # 859.98: almost one more trajectory than fits, so slots to spare
    assert plan.split.pinned_state_slots is None
    assert "--max-mamba-cache-size" not in plan.to_dict()["sglang_args"]
    assert plan.split.state_slots is not None
    assert plan.split.state_slots >= 859 * 3 + 1


@pytest.mark.parametrize("gb", [2.0, 3.0, 5.0, 11.0, 17.0, 40.0, 96.0])
@pytest.mark.parametrize("tokens", [2_000, 20_000, 150_000])
def test_pools_always_hold_the_requests_that_may_run_and_fit_the_memory(gb: float, tokens: int) -> None:
    asked = question(gb=gb)
    split = make_plan(asked, trace(tokens)).split
    assert split.state_slots is not None
    assert split.state_slots >= split.per_worker * 3 + 1
    assert (split.state_slots + 1) * 18_995_200 + split.kv_tokens * 8064 <= asked.memory_bytes
    assert split.cs == 2 * split.per_worker


def test_flags_of_server_and_gateway() -> None:
    figures = planned().to_dict()
    assert figures["sglang_args"] == [
        "--tp", "4", "--mamba-radix-cache-strategy", "no_buffer", "--mamba-full-memory-ratio", "0.085797",
        "--max-mamba-cache-size", "295", "--mamba-max-states-per-path", "1", "--disable-overlap-schedule",
        "--max-running-requests", "98", "--schedule-policy", "routing-prefix", "--routing-prefix-capacity", "147",
        "--enable-cache-report", "--enable-metrics",
    ]  # fmt: skip
    assert figures["gateway_args"] == [
        "--policy", "consistent_hashing", "--routing-key-headers", "x-lbch-slot", "--worker-urls",
        "http://worker-1:30000", "http://worker-2:30000",
    ]  # fmt: skip


def test_types_that_are_not_sglangs_own_choice_are_flags() -> None:
    deployment = Deployment(tp=4, kv_dtype="fp8_e4m3", state_dtype="bfloat16")
    asked = replace(question(), deployment=deployment, sizes=model_sizes(parse_config(LING_3), deployment))
    flags = " ".join(make_plan(asked, trace(SWE_TOKENS)).to_dict()["sglang_args"])
    assert "--mamba-ssm-dtype bfloat16 --disable-overlap-schedule --kv-cache-dtype fp8_e4m3" in flags


def test_pure_attention_has_no_ratio() -> None:
    figures = planned(config=LLAMA, gb=70).to_dict()
    assert [figures[key] for key in ("c_state_bytes", "s_state", "r_bal", "r_hat", "mode", "state_slots")] == [None] * 6
    capacity = int(70e9 / (SWE_TOKENS * 81_920))
    assert (figures["capacity_per_worker"], figures["cs"], figures["kv_tokens"]) == (capacity, 2 * capacity, 854_492)
    assert "the model keeps no recurrent states: no cache ratio applies" in figures["warnings"][0]
    assert not any("mamba" in flag for flag in figures["sglang_args"])


def test_several_contexts_take_a_state_each() -> None:
    two = [trajectory(f"t{n}", turn(500, 0, role="agent"), turn(500, 0, role="user_sim")) for n in range(10)]
    one = [trajectory(f"t{n}", turn(1000, 0)) for n in range(10)]
    assert make_plan(question(), two).need.state_bytes == 2 * make_plan(question(), one).need.state_bytes
    assert make_plan(question(), two).need.kv_bytes == make_plan(question(), one).need.kv_bytes


def test_ce_is_the_users_or_the_traces_or_none() -> None:
    assert (planned().to_dict()["ce"], planned().to_dict()["ce_advised"]) == (28, 28)  # 300 s over 2100 s / 196
    own = make_plan(question(ce=3), trace(SWE_TOKENS))
    assert (own.to_dict()["ce"], own.to_dict()["ce_advised"]) == (3, 28)
    assert said(own, "--ce 3 is fewer than the 28 slots")
    silent = make_plan(question(), trace(SWE_TOKENS, env_s=None))
    assert silent.to_dict()["ce"] is None
    assert said(silent, "records no environment times")
    assert make_plan(question(ce=3), trace(SWE_TOKENS, env_s=None)).to_dict()["ce"] == 3


def test_warnings_about_the_trace() -> None:
    assert said(make_plan(question(), trace(SWE_TOKENS, 20)), "has 20 trajectories, fewer than CS 196")
    assert said(make_plan(question(), trace(SWE_TOKENS, infer_s=None)), "300 of 600 turns have no infer_s")
    uneven = [*trace(2_000, 99), trajectory("huge", turn(900_000, 0))]
    assert said(make_plan(question(), uneven), "longest context of the trace has 900,000 tokens (trajectory huge)")
    assert said(make_plan(question(gb=2), [*trace(2_000, 50), *trace(60_000, 9)]), "may need")
    lone = [*trace(2_000, 300), trajectory("slow", turn(10, 10, infer_s=90_000.0))]
    assert said(make_plan(question(), lone), "only because one trajectory alone takes 90,000 s")
    assert said(make_plan(question(), trace(2_000), notes=["3 were left out"]), "3 were left out")
    shrinking = [trajectory(f"t{n}", turn(60_000, 0), turn(30_000, 0)) for n in range(300)]
    plan = make_plan(question(), shrinking)
    assert said(plan, "counts 30,000 tokens, those of the last turn, but at their longest they have 60,000")
    calm = planned()
    for part in ("shrink", "fewer than", "no infer_s", "the model takes", "may need", "only because"):
        assert not said(calm, part)


def test_honest_notes_on_what_is_not_there_yet() -> None:
    assert said(planned(), "come with agentbatch's SGLang plugin")
    assert said(planned(), "does not send x-lbch-slot yet")
    assert not said(planned(workers=1), "x-lbch-slot")


def test_a_quantised_kv_cache_is_pointed_out() -> None:
    config = {**LING_3, "quantization_config": {"kv_cache_quant_algo": "FP8"}}
    assert said(make_plan(question(config), trace(SWE_TOKENS)), "names a type for its KV cache")


@pytest.mark.parametrize(
    ("gb", "part"),
    [
        (0.5, "0.5 GB of cache memory per GPU hold 0.69 of one trajectory, whose contexts end at 82,365 tokens on"),
        (0.0001, "give more memory, a larger --tp, or a --mode with fewer slots"),
    ],
)
def test_memory_that_holds_no_trajectory(gb: float, part: str) -> None:
    with pytest.raises(UsageError) as refused:
        planned(gb=gb)
    assert part in str(refused.value)


def test_a_context_larger_than_the_pool() -> None:
    uneven = [*trace(2_000, 99), trajectory("huge", turn(900_000, 0))]
    with pytest.raises(UsageError, match=r"900,000 tokens \(trajectory huge\), but 2 GB of cache memory .* leave that"):
        make_plan(question(gb=2), uneven)
    with pytest.raises(UsageError, match=r"900,000 tokens"):
        make_plan(question(LLAMA, gb=10), uneven)


@pytest.mark.parametrize(
    ("fields", "part"),
    [({"gb": -1}, "not -1"), ({"gb": 0}, "positive number of GB"), ({"gb": float("nan")}, "not nan"),
     ({"gb": float("inf")}, "not inf"), ({"workers": 0}, "workers must be at least 1, not 0"),
     ({"ce": 0}, "ce must be at least 1, not 0")],
)  # fmt: skip
def test_questions_that_cannot_be(fields: dict[str, Any], part: str) -> None:
    with pytest.raises(UsageError, match=part):
        question(**fields)


def test_calibration_moves_everything_that_depends_on_the_ratio() -> None:
    plan = planned()
    assert plan.balanced is not None
    tried: list[Split] = []

    def makespan_of(split: Split) -> float:
        tried.append(split)
        assert split.ratio is not None
        return 1000.0 if split.ratio < (plan.balanced or 0) / 1.5 else 1100.0

    found = refine(plan, trace(SWE_TOKENS), makespan_of)
    figures = found.to_dict()
    assert figures["r_hat"] < figures["r_bal"] / 1.5
    assert figures["capacity_per_worker"] < 98
    assert figures["cs"] == 2 * figures["capacity_per_worker"]
    assert figures["calibration"]["ratio"] == figures["r_hat"]
    assert len(figures["calibration"]["tried"]) == len(tried)
    assert f"{figures['r_hat']:.6g}" in figures["sglang_args"]


def test_a_model_without_states_has_nothing_to_calibrate() -> None:
    with pytest.raises(UsageError, match="there is no cache ratio to calibrate"):
        refine(planned(config=LLAMA, gb=70), trace(SWE_TOKENS), lambda split: 1.0)


def test_kimi_on_one_gpu() -> None:
    figures = make_plan(question(KIMI, gb=20, tp=1, workers=1), trace(10_000)).to_dict()
    assert (figures["c_kv_bytes"], figures["c_state_bytes"]) == (8064, 43_417_600)
    assert figures["r_bal"] == pytest.approx(3 * 43_417_600 / (10_000 * 8064))
    assert figures["capacity"] == pytest.approx(20e9 / (3 * 43_417_600 + 10_000 * 8064))
