"""Runs one simulation and sums up its events, with the very figures of a replay."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import agentbatch
from agentbatch.errors import UsageError
from agentbatch.events import Event, Notice, RunEnded, RunStarted, TrajectoryEnded
from agentbatch.replay.bound import workload_known
from agentbatch.replay.lengths import Lengths
from agentbatch.replay.routes import Routes
from agentbatch.replay.submission import ordered
from agentbatch.runtime.labels import Labels
from agentbatch.sim.presets import Preset
from agentbatch.sim.records import WorkerStatistics
from agentbatch.simulate.batch import Batch, Life
from agentbatch.simulate.fleet import Fleet
from agentbatch.simulate.options import SimulateOptions
from agentbatch.simulate.prefixes import SharedPrefixes
from agentbatch.simulate.recorded import NOTICE, RecordedServer, check_recorded
from agentbatch.simulate.script import Script
from agentbatch.trace.summary import Summary, summarize
from agentbatch.trace.workload import TraceTrajectory

COUNTS = ("prefill_steps", "decode_steps", "evicted_tokens", "evicted_states", "retractions", "passes", "matches")
"""What of a worker's statistics says why a batch took as long as it did."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SimulationResult:
    """One simulation: its figures, how close it came to the recorded lengths, what failed, what its workers did."""

    summary: Summary
    """As of a replay; `wall_s` and `priority_s` are None, since no wall time passes."""
    lengths: Lengths
    failures: tuple[TrajectoryEnded, ...]
    workers: Mapping[str, WorkerStatistics]

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as JSON has them: a replay's keys, and `engine`, sums over workers, None without any.

        No reply has a text, so there is no digest.
        """
        each = self.workers.values()
        engine = {name: sum(getattr(one, name) for one in each) for name in COUNTS} if each else None
        if engine is not None:
            engine["peak_running"] = max(one.peak_running for one in each)
        return {**self.summary.to_dict(), "replies_digest": None, "engine": engine}


def check(workload: Sequence[TraceTrajectory], options: SimulateOptions) -> None:
    """Check what `SimulateOptions` cannot check without the workload.

    Raises:
        UsageError: nothing to simulate, a stage without a resource, a worker that cannot be, or turns whose recorded
            seconds are wanted and not known.
    """
    if not workload:
        raise UsageError("the workload has no trajectory to simulate")
    if not options.inference_only:
        Routes(options.ce).check(workload)
    if options.config is None:
        check_recorded(workload)


def simulate(
    workload: Sequence[TraceTrajectory],
    options: SimulateOptions,
    *,
    on_event: Callable[[Event], None] | None = None,
) -> SimulationResult:
    """Simulate `workload` once; the same workload and options give the same result, in every process.

    Args:
        workload: the trajectories, capped and limited already; ids all different.
        options: the limits, the order, and what serves.
        on_event: also called with every event, as of a live run; for a record or a display.

    Raises:
        UsageError: an option that cannot be, before anything runs.
    """
    check(workload, options)
    run, routes, engine = f"replay-{options.seed}-{options.order}", Routes(options.ce), options.engine
    events: list[Event] = []

    def emit(event: Event) -> None:
        events.append(event)
        if on_event is not None:
            on_event(event)

    script = Script(
        prefixes=SharedPrefixes(), routes=routes, inference_only=options.inference_only, lengths=Lengths()
    )
    fleet = _fleet(run, options)
    batch = Batch(
        cs=options.slots, ce=dict(options.ce), order=options.environment_order(),
        admission=options.admission_order(), fleet=fleet,
        context_tokens=engine.context_tokens if isinstance(engine, Preset) else None, emit=emit,
    )  # fmt: skip
    emit(_started(run, options))
    for kind, message in _beforehand(workload, options):
        emit(Notice(at_s=0.0, kind=kind, message=message))
    emit(
        workload_known(
            workload, source=options.source, routes=routes, workers=len(options.served_by), engine=engine,
            cs=options.slots, inference_only=options.inference_only,
            chunk_tokens=None if options.config is None else options.config.chunked_prefill_tokens,
        )
    )  # fmt: skip
    labels = Labels(run)
    batch.run([Life(one.id, labels.of(one.id), script.steps(one)) for one in _submitted(workload, options)])
    failures = tuple(one for one in events if isinstance(one, TrajectoryEnded) and one.outcome == "failed")
    for kind, message in _notices(script.lengths, failures, len(workload)):
        emit(Notice(at_s=batch.now_s, kind=kind, message=message))
    emit(RunEnded(at_s=batch.now_s, wall_s=None, outcome="ok"))
    return SimulationResult(
        summary=summarize(events), lengths=script.lengths, failures=failures, workers=fleet.statistics()
    )


def _fleet(run: str, options: SimulateOptions) -> Fleet | RecordedServer:
    if options.config is None:
        return RecordedServer()
    return Fleet(
        options.workers, options.config, routing=options.routing, alpha=options.alpha,
        random=Random(run),  # noqa: S311 - as the runtime draws
    )  # fmt: skip


def _submitted(workload: Sequence[TraceTrajectory], options: SimulateOptions) -> list[TraceTrajectory]:
    return ordered(workload, options.order, options.seed)


def _started(run: str, options: SimulateOptions) -> RunStarted:
    return RunStarted(
        run=run,
        version=agentbatch.__version__,
        started_unix_s=None,
        cs=options.slots,
        ce=dict(options.ce),
        unified=options.unified,
        env_policy=options.env_policy,
        band_s=options.environment_order().band_in_force,
        bucket_s=options.bucket_s,
        workers=options.served_by,
        routing=options.routing,
        alpha=options.alpha,
        admission=options.admission,
    )


def _beforehand(workload: Sequence[TraceTrajectory], options: SimulateOptions) -> list[tuple[str, str]]:
    """Say what serves where no engine does, and name options that have less of an effect than they seem to have."""
    unused = [] if options.inference_only else Routes(options.ce).check(workload)
    notices = [
        ("unused-limit", f"no environment stage of this workload belongs to {name!r}: its limit changes nothing")
        for name in unused
    ]
    if options.config is None:
        notices.append(("server", NOTICE))
    order = options.admission_order()
    if unknown := order.unknown(one.id for one in workload):
        notices.append(
            (
                "profile-unknown",
                f"{unknown} of the {len(workload)} trajectories are not in the profile: expected to take its median, "
                f"{order.unknown_s:,.1f} s",
            )
        )
    return notices


def _notices(lengths: Lengths, failures: Sequence[TrajectoryEnded], trajectories: int) -> list[tuple[str, str]]:
    """Say what the figures alone would hide."""
    notices = []
    if failures:
        first = failures[0]
        notices.append(
            (
                "too-large",
                f"{len(failures)} of {trajectories} trajectories failed, as a server would refuse them, and the lower "
                f"bound counts them whole; the first, {first.key}: {first.error}",
            )
        )
    if (difference := lengths.difference()) is not None:
        notices.append(("lengths", difference[0]))
    return notices
