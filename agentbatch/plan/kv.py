"""Bytes of KV cache per token and GPU rank, as SGLang 0.5.23 counts them (`model_executor/pool_configurator.py`,
`DefaultPoolConfigurator._compute_cell_size`).
"""

from __future__ import annotations

from typing import Literal

from agentbatch.errors import UsageError
from agentbatch.plan.config import ModelConfig

KvDtype = Literal["auto", "bfloat16", "fp8_e4m3", "fp8_e5m2"]
"""SGLang's `--kv-cache-dtype`; "auto" is the model's own, two bytes for every model known here."""

KV_DTYPE_BYTES: dict[KvDtype, int] = {"auto": 2, "bfloat16": 2, "fp8_e4m3": 1, "fp8_e5m2": 1}


MOST_RANKS = 1024
"""Larger values of `--tp` are not proposed."""


def mla_bytes(config: ModelConfig, *, layers: int, dtype_bytes: int) -> int:
    """Return layers x (kv_lora_rank + qk_rope_head_dim) x dtype: a latent that every rank holds whole.

    Args:
        config: the model.
        layers: how many layers have a KV cache.
        dtype_bytes: bytes per number.
    """
    # only here is the rotated part of a key dropped; elsewhere the same field means that it is not rotated
    dropped = config.architecture.startswith("BailingMoeV3") and bool(config.fields.get("use_mla_nope"))
    rope = 0 if dropped else config.integer("qk_rope_head_dim", least=0)
    return layers * (config.integer("kv_lora_rank") + rope) * dtype_bytes


def mha_bytes(config: ModelConfig, *, layers: int, tp: int, dtype_bytes: int, head_dim_required: bool) -> int:
    """Return layers x KV heads per rank x (head_dim + v_head_dim) x dtype.

    Args:
        config: the model.
        layers: how many layers have a KV cache.
        tp: ranks that share the heads; with fewer KV heads than ranks each keeps one.
        dtype_bytes: bytes per number.
        head_dim_required: do not fall back on hidden_size / num_attention_heads, which is wrong for this architecture.

    Raises:
        UsageError: a field is missing, or the heads do not divide over the ranks.
    """
    heads = config.integer("num_attention_heads")
    kv_heads = config.integer("num_key_value_heads") if config.has("num_key_value_heads") else heads
    check_divides(heads, tp, "attention heads")
    if kv_heads % tp and tp % kv_heads:
        fitting = [size for size in _divisors(heads) if kv_heads % size == 0 or size % kv_heads == 0]
        raise UsageError(f"{kv_heads} KV heads do not divide over --tp {tp}: {_choices(fitting)}")
    if config.has("head_dim") or head_dim_required:
        head_dim = config.integer("head_dim")
    else:
        head_dim = config.integer("hidden_size") // heads
        if head_dim < 1:
            raise UsageError(f"{config.source}: a hidden_size below {heads} attention heads leaves no room for a head")
    value_dim = config.integer("v_head_dim") if config.fields.get("v_head_dim") else head_dim
    return layers * max(1, kv_heads // tp) * (head_dim + value_dim) * dtype_bytes


def check_divides(count: int, tp: int, what: str) -> None:
    """Refuse heads that do not divide over the ranks, as SGLang does.

    Raises:
        UsageError: `count` is no multiple of `tp`.
    """
    if count % tp:
        raise UsageError(f"{count} {what} do not divide over --tp {tp}: {_choices(_divisors(count))}")


def _divisors(count: int) -> list[int]:
    return [size for size in range(1, min(count, MOST_RANKS) + 1) if count % size == 0]


def _choices(sizes: list[int]) -> str:
    *others, last = map(str, sizes)
    return f"use --tp {', '.join(others)} or {last}" if others else f"use --tp {last}"
