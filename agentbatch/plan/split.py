"""What one cache ratio makes of a worker: capacity, limits, pools."""

from __future__ import annotations

from dataclasses import dataclass

from agentbatch.plan.question import Question
from agentbatch.policy.capacity import (
    Footprint,
    PoolSizes,
    balanced_capacity,
    capacity,
    pool_sizes,
    reference_concurrency,
    whole,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """What one cache ratio makes of a worker."""

    ratio: float | None
    """None for a model without recurrent states; likewise the pool of states."""
    capacity: float
    """C, trajectories."""
    per_worker: int
    """floor(C): requests that run at once."""
    cs: int
    """C*_I = W floor(C) (Eq. 8)."""
    kv_tokens: int
    state_slots: int | None
    pinned_state_slots: int | None
    """Where the ratio alone makes a smaller pool than floor(C) requests need."""


def divide(question: Question, need: Footprint, ratio: float | None) -> Split:
    """Return what a ratio makes of a worker; None for a model without recurrent states."""
    if ratio is None or question.sizes.state_bytes is None:
        held = balanced_capacity(question.memory_bytes, need)
        return Split(
            ratio=None, capacity=held, per_worker=whole(held), cs=reference_concurrency(question.workers, held),
            kv_tokens=int(question.memory_bytes / question.sizes.kv_bytes), state_slots=None, pinned_state_slots=None,
        )  # fmt: skip
    held = capacity(question.memory_bytes, ratio, need).trajectories
    pools, needed = pools_at(question, ratio), needed_slots(question, whole(held))
    pinned = needed if pools.state_slots < needed else None
    pools = pools_at(question, ratio, pinned) if pinned is not None else pools
    return Split(
        ratio=ratio, capacity=held, per_worker=whole(held), cs=reference_concurrency(question.workers, held),
        kv_tokens=max(0, pools.kv_tokens), state_slots=pools.state_slots, pinned_state_slots=pinned,
    )  # fmt: skip


def pools_at(question: Question, ratio: float, state_slots: int | None = None) -> PoolSizes:
    """Return the pools SGLang makes of a ratio, or of a number of state slots that is pinned."""
    return pool_sizes(
        question.memory_bytes, ratio, c_kv_bytes=question.sizes.kv_bytes,
        c_state_bytes=question.sizes.state_bytes or 0, state_slots=state_slots,
    )  # fmt: skip


def needed_slots(question: Question, requests: int) -> int:
    """Return C x S + 1: SGLang's admission crashes without the spare one (sglang#37066)."""
    return requests * question.slots_per_request + 1
