"""What `beyond` compares: ways to order a batch, workloads to try them on, and a batch simulated without its figures.

A simulation's own figures (what binds, above all) take as long as the simulation; here only a few are wanted.
"""

import gc
import math
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from agentbatch.events import Admitted, Event, JobEnded, TrajectoryEnded
from agentbatch.replay.bound import RECORDED, workload_known
from agentbatch.replay.lengths import Lengths
from agentbatch.replay.routes import Routes
from agentbatch.replay.submission import ordered
from agentbatch.runtime.labels import Labels
from agentbatch.sim.presets import Preset
from agentbatch.simulate import SimulateOptions, worker_names
from agentbatch.simulate.batch import Batch, Life
from agentbatch.simulate.fleet import Fleet
from agentbatch.simulate.prefixes import SharedPrefixes
from agentbatch.simulate.recorded import RecordedServer
from agentbatch.simulate.script import Script, Step
from agentbatch.trace.profile import noisy, profile_of
from agentbatch.trace.scaling import scale_environment
from agentbatch.trace.workload import TraceTrajectory, cap

SAMPLE = Path(__file__).parent.parent / "examples" / "traces" / "sample.jsonl"
BASE = "FIFO + CAAS"
STRICT_S = 1e9
LONGEST: dict[str, Any] = {"admission": "longest-first"}
DEPTH: dict[str, Any] = {"env_policy": "depth"}
WAYS: dict[str, dict[str, Any]] = {
    BASE: {},
    "FIFO + FCFS": {"env_policy": "fcfs"},
    "FIFO + CAAS auto": {"band_s": "auto"},
    "FIFO + depth": DEPTH,
    "FIFO + slow-step": {"env_policy": "slow-step"},
    "LF + depth": {**LONGEST, **DEPTH},
    "LF + depth, no bands": {**LONGEST, **DEPTH, "band_s": STRICT_S},
    "LF + CAAS": LONGEST,
    "LF + CAAS auto": {**LONGEST, "band_s": "auto"},
    "LF σ = 1 + depth": {**LONGEST, **DEPTH, "noise": 1.0},
    "LF σ = 1 + CAAS auto": {**LONGEST, "band_s": "auto", "noise": 1.0},
}
"""LF: admission longest first, by an exact profile or one blurred by σ."""

SERVERS: dict[str, dict[str, Any]] = {"recorded seconds": {"engine": RECORDED}, "engine": {"workers": worker_names(2)}}
"""The engine: two workers of the default preset."""

T_95 = {2: 12.706, 3: 4.303, 20: 2.093}
"""Half width of a 95 % t interval in standard errors, by the number of values."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of one batch; seconds."""

    makespan_s: float
    bound_s: float
    tail_5_s: float
    wait_mean_s: float
    """For environment slots, all waits of a trajectory added up, mean over trajectories."""
    wait_worst_s: float
    """The same of the trajectory that waited most."""
    longest_s: float
    """The longest wait of one job."""
    admission_s: float
    """Mean wait for admission."""


def shaped(
    recorded: Sequence[TraceTrajectory], *, user_cap_s: float | None, env_scale: float
) -> list[TraceTrajectory]:
    """Cap stages at 120 s, then stretch them; fill in turns that were not timed.

    Those are taken at the file's own seconds per output token, as a profile takes them.
    """
    timed = [turn for one in recorded for turn in one.turns if turn.infer_s is not None]
    token_s = math.fsum(turn.infer_s or 0.0 for turn in timed) / sum(turn.output_tokens for turn in timed)

    def whole(one: TraceTrajectory) -> TraceTrajectory:
        turns = tuple(
            turn.model_copy(update={"infer_s": turn.output_tokens * token_s}) if turn.infer_s is None else turn
            for turn in one.turns
        )
        return one.model_copy(update={"turns": turns})

    capped = [cap(whole(one), env_cap_s=120.0, user_cap_s=user_cap_s) for one in recorded]
    return [scale_environment(one, env_scale) for one in capped]


def resampled(workload: Sequence[TraceTrajectory], number: int) -> list[TraceTrajectory]:
    """Draw as many trajectories as there are, with replacement, and give them ids of their own."""
    drawn = random.Random(f"beyond/{number}").choices(workload, k=len(workload))
    return [one.model_copy(update={"id": f"{one.id}/{place}"}) for place, one in enumerate(drawn)]


def play(
    workload: Sequence[TraceTrajectory], way: dict[str, Any], server: str, *, cs: int, ce: int, order: int
) -> Outcome:
    """Simulate one batch; one that admits in the same order as an earlier one comes out the same, and is not repeated.

    Longest first by an exact profile does, whatever the order of submission.
    """
    given = dict(way)
    noise = given.pop("noise", 0.0)
    if given.get("admission") == "longest-first":
        given["profile"] = noisy(exact_profile(workload), noise, f"0/{order}")
    options = SimulateOptions(cs=cs, ce={"default": ce}, order=order, **SERVERS[server], **given)
    submitted = ordered(workload, order, 0)
    place = options.admission_order()
    admitted = sorted(range(len(submitted)), key=lambda n: place.key(submitted[n].id, n))
    name = id(workload), server, cs, ce, options.env_policy, options.band_s, tuple(submitted[n].id for n in admitted)
    if name not in _PLAYED:
        _PLAYED[name] = _played(workload, submitted, options)
    return _PLAYED[name]


def _played(
    workload: Sequence[TraceTrajectory], submitted: Sequence[TraceTrajectory], options: SimulateOptions
) -> Outcome:
    waits: defaultdict[str, list[float]] = defaultdict(list)
    ends: list[float] = []
    admissions: list[float] = []

    def listen(event: Event) -> None:
        if isinstance(event, JobEnded):
            waits[event.label].append((event.granted_s or 0.0) - event.asked_s)
        elif isinstance(event, Admitted):
            admissions.append(event.at_s)
        elif isinstance(event, TrajectoryEnded):
            assert event.outcome == "ok", event
            ends.append(event.at_s)

    modelled = options.engine if isinstance(options.engine, Preset) else None
    fleet = (
        RecordedServer()
        if options.config is None
        else Fleet(
            options.workers, options.config, routing="lbch", alpha=options.alpha, random=random.Random(0)
        )
    )
    batch = Batch(
        cs=options.cs, ce=dict(options.ce), order=options.environment_order(), admission=options.admission_order(),
        fleet=fleet, context_tokens=modelled.context_tokens if modelled else None, emit=listen,
    )  # fmt: skip
    steps = steps_of(workload)
    gc.disable()  # a batch lives for a second, and is not garbage
    labels = Labels("replay-0-0")  # of the file's own order in all orders: what is admitted alike is placed alike
    batch.run([Life(one.id, labels.of(one.id), iter(steps[one.id])) for one in submitted])
    gc.enable()
    totals = [math.fsum(each) for each in waits.values()]
    late = sorted(ends)[math.ceil(0.95 * len(ends)) - 1]
    return Outcome(
        makespan_s=batch.now_s,
        bound_s=bound_s(workload, options),
        tail_5_s=batch.now_s - late,
        wait_mean_s=math.fsum(totals) / len(workload),
        wait_worst_s=max(totals),
        longest_s=max(wait for each in waits.values() for wait in each),
        admission_s=fmean(admissions),
    )


_BOUNDS: dict[tuple[Any, ...], float] = {}
_PLAYED: dict[tuple[Any, ...], Outcome] = {}
_STEPS: dict[int, dict[str, list[Step]]] = {}
_PROFILES: dict[int, dict[str, float]] = {}


def forget() -> None:
    """Forget what is known of workloads that are about to go."""
    _BOUNDS.clear()
    _PLAYED.clear()
    _STEPS.clear()
    _PROFILES.clear()


def steps_of(workload: Sequence[TraceTrajectory]) -> dict[str, list[Step]]:
    """Return what each trajectory does, by id; the same in every batch, so it is worked out once a workload."""
    if id(workload) not in _STEPS:
        script = Script(
            prefixes=SharedPrefixes(), routes=Routes({"default": 1}), inference_only=False, lengths=Lengths()
        )
        _STEPS[id(workload)] = {one.id: list(script.steps(one)) for one in workload}
    return _STEPS[id(workload)]


def exact_profile(workload: Sequence[TraceTrajectory]) -> dict[str, float]:
    """Return the workload as its own profile, worked out once."""
    if id(workload) not in _PROFILES:
        _PROFILES[id(workload)] = profile_of(workload)
    return _PROFILES[id(workload)]


def bound_s(workload: Sequence[TraceTrajectory], options: SimulateOptions) -> float:
    """Return the lower bound, as a simulation reports it; worked out once a workload."""
    name = id(workload), options.served_by, options.ce["default"]
    if name not in _BOUNDS:
        known = workload_known(
            workload, source="", routes=Routes(options.ce), workers=len(options.served_by), engine=options.engine,
            cs=options.slots, inference_only=False,
        )  # fmt: skip
        engine_s = 0.0 if known.engine_s is None else known.engine_s / known.workers
        _BOUNDS[name] = max(known.environment_s["default"] / options.ce["default"], engine_s, known.longest_chain_s)
    return _BOUNDS[name]


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean of `values` and its 95 % interval by Student's t."""
    middle = fmean(values)
    half = T_95[len(values)] * stdev(values) / math.sqrt(len(values))
    return middle, middle - half, middle + half


def compared(outcomes: dict[str, list[Outcome]], round_to: Callable[[float], float] = lambda x: round(x, 4)) -> dict:
    """Return for each way its makespan over the base's of the same batch, mean and interval, and means of the rest."""
    base = [one.makespan_s for one in outcomes[BASE]]
    figures = {}
    for way, each in outcomes.items():
        ratios = [one.makespan_s / other for one, other in zip(each, base, strict=True)]
        figures[way] = {
            "ratio": [round_to(value) for value in interval(ratios)],
            "bound": round_to(fmean(one.makespan_s / one.bound_s for one in each)),
            **{
                name: round(fmean(getattr(one, name) for one in each))
                for name in ("tail_5_s", "wait_mean_s", "wait_worst_s", "longest_s", "admission_s")
            },
        }
    return figures
