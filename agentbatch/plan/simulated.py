"""The makespan of a batch at one cache ratio, by simulation: what `--calibrate` asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from agentbatch.errors import UsageError
from agentbatch.plan.modes import slots_per_request
from agentbatch.plan.question import Question
from agentbatch.plan.split import Split
from agentbatch.sim.presets import Preset
from agentbatch.sim.records import WorkerConfig
from agentbatch.simulate import SimulateOptions, simulate, worker_names
from agentbatch.trace.workload import TraceTrajectory

ORDERS = 3
"""Submission orders that a makespan is the mean of, the same for every ratio: one order alone may favour any."""


def simulated_makespan(
    trajectories: Sequence[TraceTrajectory], question: Question, *, ce: int | None, engine: Preset
) -> Callable[[Split], float]:
    """Return a function that simulates the batch on workers divided as it is told: mean makespan of `ORDERS`, seconds.

    Limits, pools and label capacity are those of the split; routing-prefix orders each worker's queue, LBCH places
    turns, CAAS orders environment stages.

    Args:
        trajectories: the batch. question: model, memory and workers.
        ce: CE; None to simulate inference alone.
        engine: whose step times to take; its pools are replaced.

    Raises:
        UsageError: from the function, where a trajectory does not fit into the modelled worker.
    """

    def makespan_of(split: Split) -> float:
        worker = WorkerConfig(
            cost=engine.cost, kv_tokens=split.kv_tokens, state_slots=split.state_slots,
            slots_per_request=slots_per_request(question.mode, overlap=question.overlap), state_mode=question.mode,
            overlap=question.overlap and question.mode != "no_buffer", max_running_requests=split.per_worker,
            schedule_policy="routing-prefix",
        )  # fmt: skip
        options = SimulateOptions(
            cs=split.cs, ce={"default": ce or 1}, inference_only=ce is None, workers=worker_names(question.workers),
            engine=engine, worker=worker, source="plan",
        )  # fmt: skip
        return sum(_makespan_s(trajectories, replace(options, order=order)) for order in range(ORDERS)) / ORDERS

    return makespan_of


def _makespan_s(trajectories: Sequence[TraceTrajectory], options: SimulateOptions) -> float:
    result = simulate(trajectories, options)
    if result.failures or result.summary.makespan_s is None:
        first = f": {result.failures[0].key}, {result.failures[0].error}" if result.failures else ""
        raise UsageError(f"{len(result.failures)} trajectories do not run on the simulated workers{first}")
    return result.summary.makespan_s
