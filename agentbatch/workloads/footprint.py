"""What a trajectory takes of the cache that the paper's workloads were sized for (spec §6, Eq. 2-7).

The paper publishes r_bal, not bytes. These are our inference for Ling-3.0-Flash at TP4 (sglang.md), the same as in the
preset h20-tp4-ling-3.0-flash; bytes per GPU rank.
"""

from __future__ import annotations

from agentbatch.policy import capacity as model

KV_BYTES = 8064
"""c_kv, bytes per token of context."""
STATE_BYTES = 19e6
"""c_state, bytes per recurrent state."""
STATES = 3
"""S_state, states per request: SGLang's no_buffer mode."""
CACHE_PER_REQUEST_STATES = 1240.5
"""M / F_state: with it Eq. 7 gives BFCL's published pair, r_bal 2.26 and C 859. M is 70.7 GB then."""

INFERRED = (
    "c_kv 8,064 B, 3 states of 19 MB a request, 70.7 GB of cache a GPU: our inference for Ling-3.0-Flash TP4, "
    "not published"
)


def balanced_ratio(context_tokens: float) -> float:
    """Return r_bal of trajectories whose last turns hold `context_tokens` > 0 on average (Eq. 2, 6)."""
    return model.balanced_ratio(_need(context_tokens))


def balanced_context(ratio: float) -> float:
    """Return the mean tokens of last turns at which `ratio` > 0 is balanced: Eq. 6 solved for L_kv."""
    return STATES * STATE_BYTES / (ratio * KV_BYTES)


def capacity(ratio: float) -> int:
    """Return how many trajectories one worker holds where `ratio` > 0 is balanced (Eq. 7)."""
    memory_bytes = CACHE_PER_REQUEST_STATES * STATES * STATE_BYTES
    return model.whole(model.balanced_capacity(memory_bytes, _need(balanced_context(ratio))))


def _need(context_tokens: float) -> model.Footprint:
    return model.footprint(
        l_kv_tokens=context_tokens, c_kv_bytes=KV_BYTES, s_state=STATES, c_state_bytes=STATE_BYTES
    )
