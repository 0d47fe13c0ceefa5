"""Bytes of one recurrent state per GPU rank: what the linear layers of a hybrid model keep of a sequence.

As SGLang 0.5.23 counts them (`configs/mamba_utils.py`, `mamba_cache_per_req`, with the shapes of each model's
`mamba2_cache_params`): per layer a short convolution's window, in bfloat16, and the state proper, float32 unless
`--mamba-ssm-dtype` or, for some models, the configuration says otherwise.
"""

from __future__ import annotations

from typing import Literal

from agentbatch.errors import UsageError
from agentbatch.plan.config import ModelConfig
from agentbatch.plan.kv import check_divides

StateDtype = Literal["float32", "bfloat16", "float16"]
STATE_DTYPE_BYTES: dict[StateDtype, int] = {"float32": 4, "bfloat16": 2, "float16": 2}

CONV_BYTES = 2
"""The window is kept in bfloat16 whatever the model's own type is."""


def kda_bytes(*, layers: int, heads: int, head_dim: int, kernel: int, tp: int, state_bytes: int) -> int:
    """Return the state of Kimi Delta Attention: windows of q, k and v, and a square per head.

    Args:
        layers: linear layers.
        heads, head_dim: of the linear layers.
        kernel: width of the short convolution.
        tp: ranks that share the heads.
        state_bytes: bytes per number of the state proper.
    """
    check_divides(heads, tp, "heads of linear attention")
    window = (kernel - 1) * 3 * (heads * head_dim // tp) * CONV_BYTES
    return layers * (window + heads // tp * head_dim * head_dim * state_bytes)


def lightning_bytes(config: ModelConfig, *, layers: int, tp: int, state_bytes: int) -> int:
    """Return the state of Bailing's lightning attention: a square per head and no convolution.

    Its output norm works in `group_norm_size` groups (1 where not given), which must divide over the ranks as well.
    """
    heads, head_dim = config.integer("num_attention_heads"), config.integer("head_dim")
    check_divides(heads, tp, "heads of linear attention")
    groups = config.integer("group_norm_size") if config.has("group_norm_size") else 1
    check_divides(groups, tp, "norm groups of linear attention (group_norm_size)")
    return layers * (heads // tp) * head_dim * head_dim * state_bytes


def gdn_bytes(config: ModelConfig, *, layers: int, tp: int, state_bytes: int) -> int:
    """Return the state of a gated delta net (Qwen3-Next, Qwen3.5): window of q, k, v and a block per value head."""
    key_heads, value_heads = config.integer("linear_num_key_heads"), config.integer("linear_num_value_heads")
    check_divides(key_heads, tp, "key heads of linear attention")
    check_divides(value_heads, tp, "value heads of linear attention")
    key_dim, value_dim = config.integer("linear_key_head_dim"), config.integer("linear_value_head_dim")
    channels = value_heads * value_dim + 2 * key_heads * key_dim
    window = channels // tp * (config.integer("linear_conv_kernel_dim") - 1) * CONV_BYTES
    return layers * (window + value_heads // tp * value_dim * key_dim * state_bytes)


def mamba2_bytes(
    *, layers: int, heads: int, head_dim: int, groups: int, state_size: int, kernel: int, tp: int, state_bytes: int
) -> int:
    """Return the state of Mamba-2: window of x, B and C, and a block per head.

    Args:
        layers: Mamba layers.
        heads, head_dim: of the inner width x = heads x head_dim.
        groups: groups of B and C; a single one is copied to every rank.
        state_size: numbers per channel. kernel: width of the convolution.
        tp: ranks. state_bytes: bytes per number of the state proper.

    Raises:
        UsageError: heads or groups do not divide over the ranks.
    """
    check_divides(heads, tp, "Mamba heads")
    if groups % tp and groups != 1:
        raise UsageError(f"{groups} Mamba groups do not divide over --tp {tp}: use a --tp that divides them")
    groups_per_rank = max(1, groups // tp)
    window = (heads // tp * head_dim + 2 * groups_per_rank * state_size) * (kernel - 1) * CONV_BYTES
    return layers * (window + heads // tp * head_dim * state_size * state_bytes)
