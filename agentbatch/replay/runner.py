"""Runs a replay: calibrates, flushes, replays every trajectory through `AgentBatch`, and sums up its events."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import openai

from agentbatch.errors import StartUpError, UsageError
from agentbatch.events import Event, Notice
from agentbatch.replay.bound import PREPARE_RESOURCE, workload_known
from agentbatch.replay.calibrate import calibrate, model_name
from agentbatch.replay.options import ReplayOptions
from agentbatch.replay.server import emulator_speedup, flush_cache
from agentbatch.replay.text import Calibration
from agentbatch.replay.trajectory import Lengths, TrajectoryReplay
from agentbatch.runtime.batch import AgentBatch
from agentbatch.runtime.results import Failed
from agentbatch.sim.presets import preset
from agentbatch.trace.summary import Summary, summarize
from agentbatch.trace.workload import TraceTrajectory, TraceTurn


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayResult:
    """One replay: its figures, how close it came to the recorded lengths, and what failed."""

    summary: Summary
    lengths: Lengths
    failures: tuple[Failed, ...]
    notices: tuple[Notice, ...]


def ordered(workload: Sequence[TraceTrajectory], order: int, seed: int) -> list[TraceTrajectory]:
    """Return the workload in submission order number `order`: 0 is the file's own, others are seeded shuffles."""
    submitted = list(workload)
    if order:
        random.Random(f"{seed}/{order}").shuffle(submitted)  # noqa: S311 - a reproducible order
    return submitted


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
    if not workload:
        raise UsageError("the workload has no trajectory to replay")
    resources = options.ce

    def resource_of(turn: TraceTurn) -> str:
        return turn.env_name if isinstance(turn.env_name, str) and turn.env_name in resources else "default"

    prepare = PREPARE_RESOURCE if PREPARE_RESOURCE in resources else "default"
    _check_resources(workload, resource_of, prepare, options)
    events: list[Event] = []

    def listen(event: Event) -> None:
        events.append(event)
        if on_event is not None:
            on_event(event)

    batch = AgentBatch(
        cs=options.cs,
        ce=options.ce,
        base_url=options.base_urls,
        api_key=options.api_key,
        env_policy=options.env_policy,
        band_s=options.band_s,
        bucket_s=options.bucket_s,
        unified=options.unified,
        record=options.record,
        on_event=listen,
        speedup=options.speedup,
        run=f"replay-{options.seed}-{options.order}",
    )
    async with batch:
        model, calibration, problems = await _prepare(batch, options)
        for problem in problems:
            batch.hub.notice("replay", problem)
        batch.hub.emit(
            workload_known(
                workload,
                source=options.source,
                resource_of=resource_of,
                prepare=prepare,
                workers=len(options.base_urls),
                engine=None if options.preset is None else preset(options.preset),
                cs=batch.options.cs,
                inference_only=options.inference_only,
            )
        )
        one = TrajectoryReplay(
            model=model,
            calibration=calibration,
            seed=options.seed,
            resource_of=resource_of,
            prepare=prepare,
            inference_only=options.inference_only,
        )
        results = await batch.map(
            one.run, ordered(workload, options.order, options.seed), key=lambda trajectory: trajectory.id
        )
        _report_lengths(batch, one.lengths)
    return ReplayResult(
        summary=summarize(events),
        lengths=one.lengths,
        failures=tuple(result for result in results if isinstance(result, Failed)),
        notices=tuple(event for event in events if isinstance(event, Notice)),
    )


def _check_resources(
    workload: Sequence[TraceTrajectory],
    resource_of: Callable[[TraceTurn], str],
    prepare: str,
    options: ReplayOptions,
) -> None:
    if options.inference_only or "default" in options.ce:
        return
    needs = any(resource_of(turn) == "default" for one in workload for turn in one.turns if turn.env_s is not None)
    needs = needs or (prepare == "default" and any(one.env_prepare_s is not None for one in workload))
    if needs:
        names = ", ".join(options.ce)
        raise UsageError(
            f"some environment stages belong to none of the resources {names}: add a limit default=N to --ce"
        )


async def _prepare(batch: AgentBatch, options: ReplayOptions) -> tuple[str, Calibration, list[str]]:
    """Learn the server's ways and empty its cache; none of it counts as part of the run."""
    client = batch.plain_client()
    problems: list[str] = []
    for url in options.base_urls:
        theirs = await emulator_speedup(client, url)
        if theirs is not None and theirs != options.speedup:
            raise StartUpError(
                f"{url} is an emulated worker at speed-up {theirs:g} but the replay runs at {options.speedup:g}: pass "
                f"--speedup {theirs:g}, or times would mean nothing"
            )
    try:
        model = options.model or await model_name(client)
        calibration = await calibrate(client, model)
    except openai.OpenAIError as error:
        raise StartUpError(
            f"the server refused a first chat completion: {error}; give --model, or check the URL"
        ) from error
    if calibration is None:
        problems.append("the server reports no usage: prompt lengths are estimated at one token a character")
    if options.flush:
        problems += await flush_cache(client, options.base_urls)
    return model, calibration or Calibration(), problems


def _report_lengths(batch: AgentBatch, lengths: Lengths) -> None:
    """Say where the replay could not keep to the recorded lengths."""
    if lengths.exact_refused:
        batch.hub.notice(
            "lengths-not-exact", "lengths not exact: the server refused ignore_eos, so replies may end early"
        )
    if lengths.generated != lengths.recorded_output or abs(lengths.sent_prompt - lengths.recorded_prompt) > 0.02 * (
        lengths.recorded_prompt
    ):
        batch.hub.notice(
            "lengths",
            f"recorded {lengths.recorded_prompt} prompt and {lengths.recorded_output} output tokens, replayed "
            f"{lengths.sent_prompt} and {lengths.generated}",
            details={
                "prompt_tokens_difference": lengths.sent_prompt - lengths.recorded_prompt,
                "output_tokens_difference": lengths.generated - lengths.recorded_output,
            },
        )
