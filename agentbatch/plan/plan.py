"""From a workload and a deployment to limits, pools and command lines (spec §6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Any

from agentbatch.errors import UsageError
from agentbatch.plan import cautions
from agentbatch.plan.calibrate import Calibration, calibrate
from agentbatch.plan.commands import gateway_args, sglang_args
from agentbatch.plan.environment import EnvironmentAdvice, advise
from agentbatch.plan.profile import Profile, profile
from agentbatch.plan.question import GB, Question
from agentbatch.plan.split import Split, divide, needed_slots, pools_at
from agentbatch.policy.capacity import Footprint, balanced_ratio, footprint
from agentbatch.policy.routing_prefix import label_capacity
from agentbatch.trace.workload import TraceTrajectory

SPARE_TOKENS = 8
"""What SGLang wants free beyond the longest request, rounded up: a page, and one token to decode into."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Everything a plan says; `to_dict` has the keys of `agentbatch plan --json`."""

    question: Question
    workload: Profile
    need: Footprint
    balanced: float | None
    """r_bal."""
    split: Split
    """At r̂."""
    environment: EnvironmentAdvice
    calibration: Calibration | None
    notes: tuple[str, ...]
    """What was left out of the trace."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user should know, most urgent first."""
        asked, split = self.question, self.split
        return (*chain(
            cautions.model(asked.sizes, kv_type_given=asked.deployment.kv_dtype != "auto"),
            self._pool_cautions(),
            cautions.lengths(
                self.workload, asked.sizes, split.per_worker, split.cs,
                calibrate=self.balanced is not None and self.calibration is None,
            ),
            cautions.environment(self.environment, asked.ce),
            self.notes,
            (cautions.PLUGIN,),
            (cautions.GATEWAY,) if asked.workers > 1 else (),
        ),)  # fmt: skip

    def _pool_cautions(self) -> tuple[str, ...]:
        asked, split = self.question, self.split
        if split.ratio is None:
            return ()
        return (
            *cautions.default_ratio(asked.memory_bytes, self.need, split.per_worker),
            *cautions.pinned(
                split.ratio, pools_at(asked, split.ratio), needed_slots(asked, split.per_worker),
                split.per_worker, asked.slots_per_request,
            ),
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON has it."""
        asked, split, hybrid = self.question, self.split, self.split.ratio is not None
        mode = asked.mode if hybrid else None
        worker = sglang_args(
            tp=asked.deployment.tp, running=split.per_worker, ratio=split.ratio, mode=mode,
            overlap=asked.overlap, pinned_state_slots=split.pinned_state_slots, kv_dtype=asked.deployment.kv_dtype,
            state_dtype=asked.deployment.state_dtype,
        )  # fmt: skip
        return {
            "architecture": asked.sizes.architecture,
            "attention": asked.sizes.attention,
            "linear_attention": asked.sizes.linear,
            "c_kv_bytes": asked.sizes.kv_bytes,
            "c_state_bytes": asked.sizes.state_bytes,
            "mode": mode,
            "s_state": asked.slots_per_request if hybrid else None,
            "trajectories": self.workload.trajectories,
            "contexts": self.workload.contexts,
            "l_kv_tokens": self.workload.l_kv_tokens,
            "longest_context_tokens": self.workload.longest_tokens,
            "r_bal": self.balanced,
            "r_hat": split.ratio,
            "capacity": split.capacity,
            "capacity_per_worker": split.per_worker,
            "kv_tokens": split.kv_tokens,
            "state_slots": split.state_slots,
            "cs": split.cs,
            "ce": asked.ce if asked.ce is not None else self.environment.ce,
            "ce_advised": self.environment.ce,
            "environment_share": self.environment.share,
            "label_capacity": label_capacity(split.per_worker),
            "sglang_args": list(worker),
            "gateway_args": list(gateway_args(asked.workers)),
            "calibration": None if self.calibration is None else asdict(self.calibration),
            "warnings": list(self.warnings),
        }


def make_plan(question: Question, trajectories: Sequence[TraceTrajectory], *, notes: Sequence[str] = ()) -> Plan:
    """Plan with r̂ = r_bal.

    Args:
        question: model, memory, workers and mode.
        trajectories: what such batches do.
        notes: what was left out of them, to be passed on.

    Raises:
        UsageError: nothing to plan with, or the memory does not hold one trajectory or the longest context.
    """
    workload = profile(trajectories)
    need = footprint(
        l_kv_tokens=workload.l_kv_tokens, c_kv_bytes=question.sizes.kv_bytes, contexts=workload.contexts,
        s_state=question.slots_per_request, c_state_bytes=question.sizes.state_bytes or 0,
    )  # fmt: skip
    balanced = balanced_ratio(need) if question.slots_per_request else None
    split = divide(question, need, balanced)
    _refuse_too_small(question, need, workload, split)
    return Plan(
        question=question, workload=workload, need=need, balanced=balanced, split=split,
        environment=advise(trajectories, split.cs), calibration=None, notes=tuple(notes),
    )  # fmt: skip


def refine(
    plan: Plan,
    trajectories: Sequence[TraceTrajectory],
    makespan_of: Callable[[Split], float],
    *,
    on_tried: Callable[[float, float], None] = lambda ratio, makespan_s: None,
) -> Plan:
    """Return the plan with r̂ calibrated: the neighbour of r_bal with the shortest makespan.

    Args:
        plan: with r̂ = r_bal, of a model with recurrent states.
        trajectories: those it was made with.
        makespan_of: seconds that the batch takes on workers divided so, with its CS and label capacity.
        on_tried: called after each ratio with its makespan, for progress.

    Raises:
        UsageError: the model has no recurrent states, so that there is no ratio to calibrate.
    """
    if plan.balanced is None:
        raise UsageError("the model keeps no recurrent states: there is no cache ratio to calibrate")

    def split_at(ratio: float) -> Split:
        return divide(plan.question, plan.need, ratio)

    def feasible(ratio: float) -> bool:
        split = split_at(ratio)
        return split.per_worker >= 1 and split.kv_tokens >= plan.workload.longest_tokens + SPARE_TOKENS

    found = calibrate(
        lambda ratio: makespan_of(split_at(ratio)), plan.balanced, feasible=feasible, on_tried=on_tried
    )
    split = split_at(found.ratio)
    return replace(plan, split=split, calibration=found, environment=advise(trajectories, split.cs))


def _refuse_too_small(question: Question, need: Footprint, workload: Profile, split: Split) -> None:
    memory = f"{question.memory_bytes / GB:g} GB of cache memory"
    more = "give more memory, a larger --tp" + (", or a --mode with fewer slots" if question.slots_per_request else "")
    if split.per_worker < 1:
        takes = (need.kv_bytes + need.state_bytes) / GB
        raise UsageError(
            f"{memory} per GPU hold {split.capacity:.2f} of one trajectory, whose contexts end at "
            f"{workload.l_kv_tokens:,.0f} tokens on average and take {takes:.3g} GB: {more}"
        )
    if split.kv_tokens < workload.longest_tokens + SPARE_TOKENS:
        raise UsageError(
            f"the longest context of the trace has {workload.longest_tokens:,} tokens (trajectory "
            f"{workload.longest_id}), but {memory} per GPU leave {split.kv_tokens:,} to the KV cache: {more}, "
            "or leave that trajectory out"
        )
