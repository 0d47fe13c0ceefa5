"""How many trajectories one worker holds, and how to divide its cache memory (spec §6, paper §3.1, Eq. 1-4, 6-8).

A hybrid model keeps a KV cache, which grows with tokens, and recurrent states of fixed size, in two pools of one budget
M. Whichever pool fills up first decides; the capacity is largest where both fill up together.

Lives here: the equations and what SGLang makes of a ratio. Must not live here: what a model needs per token and per
state (`agentbatch.plan`), traces, advice.

M, c_kv and c_state are those of one GPU rank: every rank holds a shard of the same trajectories, so C is per worker.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Pool = Literal["kv", "state"]

ROUNDING = 1e-12
"""A capacity that is a whole number but for this relative error counts as that number."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pools:
    """One memory budget in two parts, bytes."""

    state_bytes: float
    """M_state."""
    kv_bytes: float
    """M_kv."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Footprint:
    """What one trajectory takes of each pool, bytes per GPU rank (Eq. 2).

    Raises:
        ValueError: `kv_bytes` is not positive, `state_bytes` is negative, or one is not finite.
    """

    kv_bytes: float
    """F_kv, > 0."""
    state_bytes: float
    """F_state; 0 for a model without recurrent states."""

    def __post_init__(self) -> None:
        if not 0 < self.kv_bytes < math.inf:
            raise ValueError(f"kv_bytes must be a positive number, not {self.kv_bytes!r}")
        if not 0 <= self.state_bytes < math.inf:
            raise ValueError(f"state_bytes must be finite and 0 or more, not {self.state_bytes!r}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Capacity:
    """Trajectories that fit into one worker (Eq. 3-4)."""

    kv: float
    """C_kv = M_kv / F_kv."""
    state: float
    """C_state = M_state / F_state; infinite for a model without states."""

    @property
    def trajectories(self) -> float:
        """C = min(C_kv, C_state)."""
        return min(self.kv, self.state)

    @property
    def whole(self) -> int:
        """floor(C)."""
        return whole(self.trajectories)

    @property
    def limited_by(self) -> Pool:
        """The pool that fills up first; "kv" where both do at once."""
        return "state" if self.state < self.kv else "kv"


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolSizes:
    """What SGLang allocates on each rank."""

    state_slots: int
    """States that requests and the prefix cache can have; one more is allocated as padding."""
    kv_tokens: int


def split(memory_bytes: float, ratio: float) -> Pools:
    """Divide M: r = M_state / M_kv, so M_state = M r/(1+r) and M_kv = M/(1+r) (Eq. 1).

    Args:
        memory_bytes: M, cache memory of one rank, > 0.
        ratio: r, SGLang's `--mamba-full-memory-ratio`, >= 0; 0 leaves everything to KV.
    """
    _check(memory_bytes, ratio)
    return Pools(state_bytes=memory_bytes * ratio / (1 + ratio), kv_bytes=memory_bytes / (1 + ratio))


def footprint(
    *, l_kv_tokens: float, c_kv_bytes: float, s_state: float = 0, c_state_bytes: float = 0, contexts: float = 1
) -> Footprint:
    """Return F_kv = L_kv(D) c_kv and F_state = S_state c_state, once per context (Eq. 2).

    Args:
        l_kv_tokens: L_kv(D), tokens that a trajectory's contexts have together at the end, mean over trajectories.
        c_kv_bytes: bytes per token. c_state_bytes: bytes per state; 0 for a model without states. Both per rank.
        s_state: recurrent-state slots that this deployment keeps per request.
        contexts: contexts per trajectory, mean; more than one where a user simulator has one of its own.
    """
    return Footprint(kv_bytes=l_kv_tokens * c_kv_bytes, state_bytes=contexts * s_state * c_state_bytes)


def capacity(memory_bytes: float, ratio: float, need: Footprint) -> Capacity:
    """Return C_kv and C_state at one ratio (Eq. 3).

    Args:
        memory_bytes: M, cache memory of one rank, > 0.
        ratio: r, >= 0.
        need: what one trajectory takes.
    """
    pools = split(memory_bytes, ratio)
    state = math.inf if need.state_bytes == 0 else pools.state_bytes / need.state_bytes
    return Capacity(kv=pools.kv_bytes / need.kv_bytes, state=state)


def balanced_ratio(need: Footprint) -> float:
    """Return r_bal = F_state / F_kv, at which both pools fill up together and C is largest (Eq. 6)."""
    return need.state_bytes / need.kv_bytes


def balanced_capacity(memory_bytes: float, need: Footprint) -> float:
    """Return C(r_bal) = M / (F_kv + F_state) (Eq. 7), for M > 0 bytes."""
    _check(memory_bytes, 0)
    return memory_bytes / (need.kv_bytes + need.state_bytes)


def reference_concurrency(workers: int, per_worker: float) -> int:
    """Return C*_I = W floor(C(r̂)) (Eq. 8): a reference for CS, not a hard cap.

    Args:
        workers: W, >= 1.
        per_worker: C(r̂), >= 0.
    """
    return workers * whole(per_worker)


def whole(trajectories: float) -> int:
    """Return floor(C), where a whole number that rounding made a hair smaller stays that number."""
    return math.floor(trajectories * (1 + ROUNDING))


def pool_sizes(
    memory_bytes: float, ratio: float, *, c_kv_bytes: float, c_state_bytes: float, state_slots: int | None = None
) -> PoolSizes:
    """Return the pools that SGLang makes of a ratio, as `mem_cache/kv_cache_configurator.py` of 0.5.23 does.

    K = floor((M r/(1+r) - c_state) / c_state) states and one slot of padding; all that is left goes to KV. Without
    speculative decoding, which takes scratch of its own.

    Args:
        memory_bytes, ratio: M of one rank, > 0, and r >= 0.
        c_kv_bytes, c_state_bytes: per rank, > 0.
        state_slots: K, where `--max-mamba-cache-size` pins it; the ratio is then unused.

    Returns:
        The sizes; `state_slots` or `kv_tokens` of 0 or less mean that the server would not start.
    """
    budget = split(memory_bytes, ratio).state_bytes
    slots = whole((budget - c_state_bytes) / c_state_bytes) if state_slots is None else state_slots
    left = memory_bytes - (slots + 1) * c_state_bytes
    return PoolSizes(state_slots=slots, kv_tokens=math.floor(left / c_kv_bytes))


def _check(memory_bytes: float, ratio: float) -> None:
    if not 0 < memory_bytes < math.inf:
        raise ValueError(f"memory_bytes must be a positive number, not {memory_bytes!r}")
    if not 0 <= ratio < math.inf:
        raise ValueError(f"a ratio must be finite and 0 or more, not {ratio!r}")
