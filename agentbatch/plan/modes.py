"""How many recurrent-state slots SGLang 0.5.23 keeps per running request, by mode of its state cache.

`mem_cache/kv_cache_configurator.py`, `_calculate_mamba_ratio`, and `mem_cache/allocation_sizing.py`. Its environment
variable SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK, which saves a slot, is taken to be unset; so is speculative decoding.
"""

from __future__ import annotations

from typing import Literal

from agentbatch.errors import UsageError

Mode = Literal["no_buffer", "extra_buffer", "extra_buffer_lazy"]
"""`--mamba-radix-cache-strategy`."""

DEFAULT_MODE: Mode = "extra_buffer"
"""What "auto" comes to for every hybrid model known here, with the overlap schedule."""

_BASE = 3


def slots_per_request(mode: Mode, *, overlap: bool = True) -> int:
    """Return S_state.

    Args:
        mode: of the state cache.
        overlap: the overlap schedule is on; `no_buffer` always runs without it.

    Raises:
        UsageError: the lazy buffer without the overlap schedule, which SGLang refuses.
    """
    if mode == "no_buffer":
        return _BASE
    if mode == "extra_buffer":
        return _BASE + (2 if overlap else 1)
    if not overlap:
        raise UsageError("extra_buffer_lazy needs the overlap schedule: leave --no-overlap out, or use extra_buffer")
    return _BASE + 1
