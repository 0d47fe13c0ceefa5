"""Runs a replay: prepares the server, replays every trajectory through `AgentBatch`, and sums up its events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentbatch.errors import UsageError
from agentbatch.events import Event, Notice
from agentbatch.replay.bound import workload_known
from agentbatch.replay.lengths import Lengths
from agentbatch.replay.options import ReplayOptions
from agentbatch.replay.prepare import prepare
from agentbatch.replay.routes import Routes
from agentbatch.replay.submission import ordered
from agentbatch.replay.trajectory import TrajectoryReplay
from agentbatch.runtime.batch import AgentBatch
from agentbatch.runtime.results import Failed
from agentbatch.sim.presets import preset
from agentbatch.trace.profile import noisy
from agentbatch.trace.summary import Summary, summarize
from agentbatch.trace.workload import TraceTrajectory

SOMEWHERE = "http://127.0.0.1/v1"
"""Stands for the server while options are checked before there is one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayResult:
    """One replay: its figures, how close it came to the recorded lengths, what failed, what the model said."""

    summary: Summary
    lengths: Lengths
    failures: tuple[Failed, ...]
    notices: tuple[Notice, ...]
    replies_digest: str
    """Equal for two replays that generated the same replies, whatever their limits, policy, speed-up and workers."""

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as JSON has them."""
        return {**self.summary.to_dict(), "replies_digest": self.replies_digest}


def check(workload: Sequence[TraceTrajectory], options: ReplayOptions) -> None:
    """Check everything that can be checked before a server is there; `options.base_urls` may still be empty.

    Raises:
        UsageError: an option that cannot be.
    """
    if not workload:
        raise UsageError("the workload has no trajectory to replay")
    if not options.inference_only:
        Routes(options.ce).check(workload)
    if options.preset is not None:
        preset(options.preset)
    _batch(options if options.base_urls else replace(options, base_urls=(SOMEWHERE,)), None)


async def replay(
    workload: Sequence[TraceTrajectory],
    options: ReplayOptions,
    *,
    on_event: Callable[[Event], None] | None = None,
) -> ReplayResult:
    """Replay `workload` once.

    Args:
        workload: the trajectories, capped and limited already.
        options: what to replay against, and how.
        on_event: also called with every event, for a live display.

    Raises:
        StartUpError: the server cannot be reached, or cannot be replayed against.
        UsageError: an option that cannot be, before anything runs.
    """
    check(workload, options)
    server = await prepare(options)
    options = replace(options, speedup=server.speedup)
    routes = Routes(options.ce)
    events: list[Event] = []

    def listen(event: Event) -> None:
        events.append(event)
        if on_event is not None:
            on_event(event)

    one = TrajectoryReplay(
        model=server.model,
        calibration=server.calibration,
        exact=server.exact,
        seed=options.seed,
        routes=routes,
        inference_only=options.inference_only,
    )
    async with _batch(options, listen) as batch:
        for kind, message in (*server.notices, *_unused(workload, options)):
            batch.hub.notice(kind, message)
        batch.hub.emit(
            workload_known(
                workload,
                source=options.source,
                routes=routes,
                workers=len(options.base_urls),
                engine=None if options.preset is None else preset(options.preset),
                cs=batch.options.cs,
                inference_only=options.inference_only,
            )
        )
        results = await batch.map(
            one.run, ordered(workload, options.order, options.seed), key=lambda trajectory: trajectory.id
        )
        one.lengths.report(batch.hub)
    return ReplayResult(
        summary=summarize(events),
        lengths=one.lengths,
        failures=tuple(result for result in results if isinstance(result, Failed)),
        notices=tuple(event for event in events if isinstance(event, Notice)),
        replies_digest=one.replies.digest(),
    )


def _batch(options: ReplayOptions, on_event: Callable[[Event], None] | None) -> AgentBatch:
    return AgentBatch(
        cs=options.cs,
        ce=options.ce,
        base_url=options.base_urls,
        api_key=options.api_key,
        env_policy=options.env_policy,
        band_s=options.band_s,
        bucket_s=options.bucket_s,
        admission=options.admission,
        profile=_profile(options),
        unified=options.unified,
        routing=options.routing,
        alpha=options.alpha,
        record=options.record,
        on_event=on_event,
        drain_on_interrupt=False,  # a drained replay measures nothing
        speedup=1.0 if options.speedup is None else options.speedup,
        run=f"replay-{options.seed}-{options.order}",
    )


def _profile(options: ReplayOptions) -> dict[str, float] | None:
    if options.profile is None:
        if options.profile_noise:
            raise UsageError("profile_noise blurs a profile: give one, or leave the noise out")
        return None
    return noisy(options.profile, options.profile_noise, f"{options.seed}/{options.order}")


def _unused(workload: Sequence[TraceTrajectory], options: ReplayOptions) -> list[tuple[str, str]]:
    """Name limits that nothing falls under: a slip of the pen, most likely."""
    if options.inference_only:
        return []
    return [
        ("unused-limit", f"no environment stage of this workload belongs to {name!r}: its limit changes nothing")
        for name in Routes(options.ce).check(workload)
    ]
