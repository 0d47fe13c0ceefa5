"""What a plan should warn of, in sentences: pools that would starve, contexts that do not fit, means that mislead."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from agentbatch.plan.commands import SLOT_HEADER, ratio_text
from agentbatch.plan.environment import EnvironmentAdvice
from agentbatch.plan.profile import Profile
from agentbatch.plan.sizes import ModelSizes
from agentbatch.policy.capacity import Footprint, PoolSizes, capacity

DEFAULT_RATIO = 0.9
"""SGLang's `--mamba-full-memory-ratio` where nobody gives one."""

LEAST_LOSS = 0.1
"""Share of the planned trajectories that SGLang's default ratio must lose to be warned of."""

LEAST_SPREAD = 0.1
"""Relative standard deviation of what floor(C) trajectories need together, from which on the mean misleads."""

LEAST_SHRINKING = 1.1
"""How much longer than at their end contexts must have been for the end to mislead."""

LONE_CHAIN = 2.0
"""How many times longer than all the others together one trajectory must be to be named."""

PLUGIN = (
    "--schedule-policy routing-prefix and --routing-prefix-capacity come with agentbatch's SGLang plugin, which this "
    "version does not have yet: until then start SGLang with --schedule-policy lpm and without the second flag"
)
GATEWAY = (
    f"this version of agentbatch does not send {SLOT_HEADER} yet: until it does, give AgentBatch every worker's URL "
    "instead of a gateway's, and it places turns by LBCH itself"
)


def default_ratio(memory_bytes: float, need: Footprint, planned: int) -> Iterator[str]:
    """Warn where SGLang's default ratio would hold far fewer trajectories than planned (sglang#25993, #31643)."""
    held = capacity(memory_bytes, DEFAULT_RATIO, need)
    if planned - held.whole >= LEAST_LOSS * planned:
        pool = {"kv": "KV cache", "state": "recurrent-state pool"}[held.limited_by]
        yield (
            f"SGLang's default --mamba-full-memory-ratio {DEFAULT_RATIO} would starve the {pool}: {held.whole} "
            f"trajectories a worker instead of {planned}; keep the ratio on the command line"
        )


def pinned(ratio: float, by_ratio: PoolSizes, needed: int, per_worker: int, s_state: int) -> Iterator[str]:
    """Say that the ratio's own state pool falls short of C x S + 1 slots (sglang#37066)."""
    if by_ratio.state_slots < needed:
        yield (
            f"--mamba-full-memory-ratio {ratio_text(ratio)} alone makes {max(0, by_ratio.state_slots)} state slots, "
            f"but {per_worker} requests of {s_state} and one spare take {needed}: --max-mamba-cache-size {needed} pins "
            "them, and SGLang then gives the rest to KV, whatever the ratio"
        )


def lengths(workload: Profile, sizes: ModelSizes, per_worker: int, cs: int, *, calibrate: bool) -> Iterator[str]:
    """Warn of lengths that a mean does not tell, contexts the model was not made for, and a short trace.

    Args:
        workload: lengths of the trace.
        sizes: of the model.
        per_worker: trajectories that a worker holds.
        cs: of all workers.
        calibrate: advise --calibrate: there is a ratio to calibrate, and it has not been yet.
    """
    advice = ["--calibrate"] if calibrate else []
    joint = workload.spread / math.sqrt(per_worker)
    if joint > LEAST_SPREAD:
        yield (
            f"trajectories end at very different lengths ({workload.low_tokens:,} to {workload.high_tokens:,} tokens "
            f"from the 10th to the 90th percentile): {per_worker} of them may need {2 * joint:.0%} more KV than the "
            "mean says, and SGLang would then evict and compute again" + _try(advice)
        )
    if workload.peak_tokens > LEAST_SHRINKING * workload.l_kv_tokens:
        yield (
            f"contexts shrink before they end: L_kv counts {workload.l_kv_tokens:,.0f} tokens, those of the last turn, "
            f"but at their longest they have {workload.peak_tokens:,.0f}: {per_worker} trajectories a worker may not "
            "fit then, and SGLang would evict and compute again" + _try([*advice, "a smaller CS"])
        )
    if sizes.context_tokens is not None and workload.longest_tokens > sizes.context_tokens:
        yield (
            f"the longest context of the trace has {workload.longest_tokens:,} tokens (trajectory "
            f"{workload.longest_id}), the model takes {sizes.context_tokens:,}: such requests are refused"
        )
    if workload.trajectories < cs:
        yield (
            f"the trace has {workload.trajectories} trajectories, fewer than CS {cs}: a batch of that size runs all at "
            "once and needs no limit; CS counts for larger ones"
        )


def _try(advice: Sequence[str]) -> str:
    return f"; try {', or '.join(advice)}" if advice else ""


def model(sizes: ModelSizes, *, kv_type_given: bool) -> Iterator[str]:
    """Say that no ratio applies, or that the checkpoint has a type of its own for KV."""
    if sizes.state_bytes is None:
        yield "the model keeps no recurrent states: no cache ratio applies, and CS goes by the KV cache alone"
    if sizes.kv_quantised and not kv_type_given:
        yield (
            "the checkpoint names a type for its KV cache, which SGLang may use; c_kv here is that of two bytes a "
            "number: say which it is with --kv-cache-dtype"
        )


def _seconds(value: float) -> str:
    """Return seconds as a sentence has them: whole, or with a decimal where those would look alike."""
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"


def environment(advice: EnvironmentAdvice, ce: int | None) -> Iterator[str]:
    """Say what a CE rests on, or why there is none."""
    if advice.ce is None:
        if ce is None:
            yield "the trace records no environment times, so it says nothing about CE: set it by what the tools stand"
        return
    if ce is not None and ce < advice.ce:
        yield (
            f"--ce {ce} is fewer than the {advice.ce} slots from which on environment work would not hold the batch "
            "up: tools will bound the makespan"
        )
    if ce is None and advice.longest_chain_s > LONE_CHAIN * advice.all_chains_s:
        yield (
            f"CE {advice.ce} is enough only because one trajectory alone takes {_seconds(advice.longest_chain_s)} s, "
            f"where all of them, CS at a time, need {_seconds(advice.all_chains_s)} s: a larger CE ends the others "
            "sooner"
        )
    if advice.timed_turns < advice.turns:
        yield (
            f"{advice.turns - advice.timed_turns} of {advice.turns} turns have no infer_s and count as 0 s: the CE "
            "that the trace asks for is too high rather than too low"
        )
