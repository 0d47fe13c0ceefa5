"""What one simulation of the page is asked for, what it answers, and the carrying out of many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any, Literal

from agentbatch.plan.modes import slots_per_request
from agentbatch.sim import WorkerStatistics
from agentbatch.simulate import SimulateOptions, SimulationResult
from agentbatch.simulate.grid import Grid
from agentbatch.simulate.pool import available_cores, simulate_all
from agentbatch.trace.scaling import scale_environment
from agentbatch.trace.workload import TraceTrajectory
from agentbatch.workloads import generate
from agentbatch.workloads.footprint import CACHE_PER_REQUEST_STATES, STATE_BYTES, STATES

CACHE_MEMORY_GB = CACHE_PER_REQUEST_STATES * STATES * STATE_BYTES / 1e9
"""M at which the paper's pairs of ratio and capacity come out: r 0.0858 gives C 98, r 2.26 gives C 859."""

Mode = Literal["no_buffer", "extra_buffer", "extra_buffer_lazy"]

FIGURES = (
    "makespan_s", "tail_5_s", "cache_reuse", "mean_in_flight", "environment_share", "beta", "gamma_out",
    "new_prefill_tokens", "completed", "failed", "lower_bound_s", "bottleneck",
)  # fmt: skip
"""Of a summary."""
ENGINE = ("prefill_steps", "decode_steps", "evicted_tokens", "evicted_states", "retractions", "passes", "matches")
"""Of workers' statistics, added up."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """One simulation.

    Args:
        table, row: where it belongs on the page.
        workload, seed, trajectories: what is generated; None is the published number.
        equal_outputs: every turn of the workload has its mean output; answers keep their lengths.
        pause_s: a stage of so many seconds between turns; give it a `ce` as large as `cs`, so that none waits.
        env_scale: environment stages times this. ce: None is without environment.
        order: of submission; 0 is the generated one.
        The others: as the options of `agentbatch simulate`.
    """

    table: str
    row: str = ""
    workload: str
    seed: int = 0
    trajectories: int | None = None
    equal_outputs: bool = False
    pause_s: float = 0.0
    env_scale: float = 1.0
    cs: int
    ce: int | None = None
    unified: bool = False
    ratio: float
    schedule_policy: str = "routing-prefix"
    routing: str = "lbch"
    env_policy: Literal["caas", "fcfs"] = "caas"
    band_s: float = 30.0
    workers: int = 1
    preset: str = "h20-tp4-ling-3.0-flash"
    mode: Mode = "no_buffer"
    label_capacity: int | None = None
    chunk_tokens: int = 8192
    max_running_requests: int = 1024
    order: int = 0

    def generated(self) -> tuple[object, ...]:
        """Return what decides the workload."""
        return self.workload, self.seed, self.trajectories, self.equal_outputs, self.pause_s, self.env_scale

    def trajectories_of(self) -> list[TraceTrajectory]:
        """Generate the workload."""
        made = generate(self.workload, seed=self.seed, trajectories=self.trajectories)
        made = [scale_environment(one, self.env_scale) for one in made]
        if self.equal_outputs:
            made = with_equal_outputs(made)
        return [_paused(one, self.pause_s) for one in made] if self.pause_s else made

    def options(self) -> SimulateOptions:
        """Return the same as the simulator takes it."""
        grid = Grid(
            cs=[self.cs], ce=[None if self.ce is None else {"default": self.ce}], cache_ratio=[self.ratio],
            schedule_policy=[self.schedule_policy], routing=[self.routing], env_policy=[self.env_policy],
            band_s=self.band_s,
            workers=self.workers, preset=self.preset, cache_memory_gb=CACHE_MEMORY_GB, unified=self.unified,
            state_mode=self.mode, slots_per_request=slots_per_request(self.mode),
            label_capacity=self.label_capacity, chunked_prefill_tokens=self.chunk_tokens,
            max_running_requests=self.max_running_requests,
            seed=self.seed, source=self.workload,
        )  # fmt: skip
        return replace(grid.cells()[0].options, order=self.order)


Record = Mapping[str, Any]
"""An `Ask` and its figures, as JSON has them."""


def with_equal_outputs(workload: Sequence[TraceTrajectory]) -> list[TraceTrajectory]:
    """Give every turn the mean output of all; the environment's answers keep their lengths, contexts follow."""
    turns = [turn for one in workload for turn in one.turns]
    mean = round(sum(turn.output_tokens for turn in turns) / len(turns))
    return [_equal(one, mean) for one in workload]


def _equal(trajectory: TraceTrajectory, output_tokens: int) -> TraceTrajectory:
    turns, shift = [], 0
    for turn in trajectory.turns:
        turns.append(turn.model_copy(
            update={"prompt_tokens": turn.prompt_tokens + shift, "output_tokens": output_tokens}
        ))  # fmt: skip
        shift += output_tokens - turn.output_tokens
    return trajectory.model_copy(update={"turns": tuple(turns)})


def _paused(trajectory: TraceTrajectory, pause_s: float) -> TraceTrajectory:
    turns = [turn.model_copy(update={"env_s": pause_s}) for turn in trajectory.turns[:-1]]
    return trajectory.model_copy(update={"turns": (*turns, trajectory.turns[-1])})


def carry_out(asks: Sequence[Ask], told: Callable[[str], None], jobs: int | None = None) -> list[dict[str, Any]]:
    """Simulate `asks` over the cores and return a record each, in their order.

    Args:
        asks: asks of one workload that follow one another share it.
        told: hears of progress.
        jobs: processes; by default a core each.
    """
    records: list[dict[str, Any]] = []
    for _, group in groupby(asks, Ask.generated):
        mine = list(group)
        found: dict[int, dict[str, Any]] = {}

        def done(place: int, result: SimulationResult, wall_s: float, mine=mine, found=found) -> None:
            found[place] = _record(mine[place], result, wall_s)
            told(f"{mine[place].table}: {len(records) + len(found)} of {len(asks)}")

        simulate_all(
            mine[0].trajectories_of(), [one.options() for one in mine], done,
            jobs=available_cores() if jobs is None else jobs,
        )  # fmt: skip
        records.extend(found[place] for place in range(len(mine)))
    return records


def _record(ask: Ask, result: SimulationResult, wall_s: float) -> dict[str, Any]:
    summary = result.to_dict()
    default = {name: field.default for name, field in Ask.__dataclass_fields__.items()}
    asked = {name: value for name, value in asdict(ask).items() if value != default[name]}
    figures = {name: _rounded(summary[name]) for name in FIGURES}
    engine = {name: added(result.workers.values(), name) for name in ENGINE}
    worker = ask.options().config
    most = min(worker.max_running_requests, (worker.state_slots or 0) // worker.slots_per_request)
    waited = 0.0 if worker.overlap else engine["matches"] * worker.cost.match_s
    return {
        **asked, **figures, **engine, "running_most": most,
        "labels": worker.labels, "matching_s": round(waited, 3), "wall_s": round(wall_s, 1),
    }  # fmt: skip


def added(workers: Iterable[WorkerStatistics], name: str) -> int:
    """Add one of the statistics up."""
    return sum(getattr(one, name) for one in workers)


def _rounded(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value
