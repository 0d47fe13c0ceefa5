"""The exact flags of SGLang 0.5.23 and of its gateway, smg 1.13.0, that put a plan into effect."""

from __future__ import annotations

from agentbatch.plan.kv import KvDtype
from agentbatch.plan.modes import Mode
from agentbatch.plan.states import StateDtype
from agentbatch.policy.routing_prefix import label_capacity

SLOT_HEADER = "x-lbch-slot"
"""Header whose value smg hashes instead of the label (sglang.md, "Exact LBCH through an unmodified smg")."""


def ratio_text(ratio: float) -> str:
    """Write a ratio as the command line has it: six significant digits."""
    return f"{ratio:.6g}"


def sglang_args(
    *,
    tp: int,
    running: int,
    ratio: float | None,
    mode: Mode | None,
    overlap: bool,
    pinned_state_slots: int | None,
    kv_dtype: KvDtype,
    state_dtype: StateDtype | None,
) -> tuple[str, ...]:
    """Return the flags to start one worker with.

    Args:
        tp: tensor-parallel ranks.
        running: floor(C), requests that run at once; routing-prefix scheduling remembers half as many labels again.
        ratio: r̂. mode: of the state cache. Both None for a model without recurrent states.
        overlap: the overlap schedule is wanted; `no_buffer` does not go with it.
        pinned_state_slots: where the ratio's own pool would be too small.
        kv_dtype, state_dtype: where not SGLang's own choice.
    """
    flags: list[str] = ["--tp", str(tp)]
    if ratio is not None and mode is not None:
        flags += ["--mamba-radix-cache-strategy", mode]
        flags += ["--mamba-full-memory-ratio", ratio_text(ratio)]
        if pinned_state_slots is not None:
            flags += ["--max-mamba-cache-size", str(pinned_state_slots)]
        flags += ["--mamba-max-states-per-path", "1"]
        if state_dtype is not None:
            flags += ["--mamba-ssm-dtype", state_dtype]
    if not overlap or mode == "no_buffer":
        flags.append("--disable-overlap-schedule")
    if kv_dtype != "auto":
        flags += ["--kv-cache-dtype", kv_dtype]
    flags += ["--max-running-requests", str(running)]
    flags += ["--schedule-policy", "routing-prefix", "--routing-prefix-capacity", str(label_capacity(running))]
    return (*flags, "--enable-cache-report", "--enable-metrics")


def gateway_args(workers: int) -> tuple[str, ...]:
    """Return the flags to start the gateway with; the URLs are placeholders, one a worker."""
    urls = [f"http://worker-{number}:30000" for number in range(1, workers + 1)]
    return ("--policy", "consistent_hashing", "--routing-key-headers", SLOT_HEADER, "--worker-urls", *urls)
