"""A snapshot of a running batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agentbatch.policy.bottleneck import Bottleneck
from agentbatch.policy.slots import SlotStatistics
from agentbatch.policy.whereabouts import Whereabouts
from agentbatch.runtime.account import Account
from agentbatch.runtime.admission import Admission
from agentbatch.runtime.gate import Gate
from agentbatch.runtime.lag import LagMeter, LoopLag
from agentbatch.runtime.workers import Workers, WorkerStatistics


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchStatistics:
    """What the batch does right now; every count is read from state, none is kept beside it."""

    run: str
    now_s: float
    admission: SlotStatistics
    environment: Mapping[str, SlotStatistics]
    turns_in_flight: int
    workers: Mapping[str, WorkerStatistics]
    """By URL; empty in a batch without a server."""
    turns_completed: int
    jobs_completed: int
    trajectories_completed: int
    trajectories_failed: int
    attempts_failed: int
    inference_in_environment: int
    passed_through: int
    """Calls of the module-level `environment()` and `act()` made outside any trajectory, hence ungated."""
    notices: int
    bottleneck: Bottleneck
    """Which limit binds, over about the last minute; its `shares` say where trajectories spent that time."""
    loop_lag: LoopLag | None
    """How late the event loop woke sleepers over the whole run; None where that was not measured."""
    loop_lag_last_minute: LoopLag | None


def snapshot(
    *,
    run: str,
    now_s: float,
    admission: Admission,
    gates: Mapping[str, Gate],
    workers: Workers | None,
    account: Account,
    whereabouts: Whereabouts,
    notices: int,
    lag: LagMeter,
) -> BatchStatistics:
    """Read a batch's state."""
    per_worker = {} if workers is None else workers.statistics()
    return BatchStatistics(
        run=run,
        now_s=now_s,
        admission=admission.gate.statistics(),
        environment={name: gate.statistics() for name, gate in gates.items()},
        turns_in_flight=sum(worker.in_flight for worker in per_worker.values()),
        workers=per_worker,
        turns_completed=account.turns_completed,
        jobs_completed=account.jobs_completed,
        trajectories_completed=admission.completed,
        trajectories_failed=admission.failed,
        attempts_failed=account.attempts_failed,
        inference_in_environment=account.inference_in_environment,
        passed_through=account.passed_through,
        notices=notices,
        bottleneck=whereabouts.bottleneck(
            now_s,
            admission.gate.statistics().capacity,
            {name: gate.statistics().capacity for name, gate in gates.items()},
            window=True,
        ),
        loop_lag=lag.overall,
        loop_lag_last_minute=lag.last_minute,
    )
