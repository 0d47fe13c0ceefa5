"""The makespan of a batch at one cache ratio, by simulation: what `--calibrate` asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agentbatch.errors import UsageError
from agentbatch.plan.question import Question
from agentbatch.plan.split import Split
from agentbatch.sim.presets import Preset
from agentbatch.sim.records import WorkerConfig
from agentbatch.sim.waiting import POLICIES
from agentbatch.simulate import SimulateOptions, simulate, worker_names
from agentbatch.trace.workload import TraceTrajectory

SCHEDULE_POLICY = POLICIES[-1]
"""The method's own stands last."""


def simulated_makespan(
    trajectories: Sequence[TraceTrajectory], question: Question, *, ce: int | None, engine: Preset
) -> Callable[[Split], float]:
    """Return a function that simulates the batch on workers divided as it is told; seconds.

    Limits, pools and label capacity are those of the split, LBCH places turns, CAAS orders environment stages.

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
            slots_per_request=max(1, question.slots_per_request), max_running_requests=split.label_capacity,
            schedule_policy=SCHEDULE_POLICY,
        )  # fmt: skip
        options = SimulateOptions(
            cs=split.cs, ce={"default": ce or 1}, inference_only=ce is None, workers=worker_names(question.workers),
            engine=engine, worker=worker, source="plan",
        )  # fmt: skip
        result = simulate(trajectories, options)
        if result.failures or result.summary.makespan_s is None:
            first = f": {result.failures[0].key}, {result.failures[0].error}" if result.failures else ""
            raise UsageError(f"{len(result.failures)} trajectories do not run on the simulated workers{first}")
        return result.summary.makespan_s

    return makespan_of
