"""Makes the trajectories of a workload: totals first, then divided, so that they are met exactly.

A turn's prompt is the prompt before it, its output and the environment's answer (spec §1), so prompts never shrink.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence

from agentbatch.errors import UsageError
from agentbatch.trace.workload import TraceTrajectory, TraceTurn
from agentbatch.workloads.catalog import WORKLOADS
from agentbatch.workloads.draws import apportion, weights
from agentbatch.workloads.footprint import INFERRED, balanced_context
from agentbatch.workloads.spec import Spread, WorkloadSpec

MOST_TRAJECTORIES = 100_000
"""Of SWE 8.8 million turns, several GB."""


def workload_spec(name: str) -> WorkloadSpec:
    """Return what the workload called `name` is made from.

    Raises:
        UsageError: no such workload; names those there are.
    """
    try:
        return WORKLOADS[name]
    except KeyError:
        raise UsageError(f"unknown workload {name!r}; known: {', '.join(WORKLOADS)}") from None


def generate(name: str, *, seed: int = 0, trajectories: int | None = None) -> list[TraceTrajectory]:
    """Return a workload matched to the paper's aggregates (spec §9); `WorkloadSpec.sources` says what matches what.

    The same arguments give the same trajectories in every process and on every supported Python.

    Args:
        name: a key of `WORKLOADS`.
        seed: of all draws; the totals do not depend on it.
        trajectories: how many, 1 to `MOST_TRAJECTORIES`; by default as published. Requests, output tokens and contexts
            then have the same means per trajectory, exactly but for rounding the totals to whole numbers.

    Raises:
        UsageError: unknown name, or `trajectories` out of range.
    """
    spec = workload_spec(name)
    count = spec.trajectories if trajectories is None else trajectories
    if count < 1:
        raise UsageError(f"a workload has at least 1 trajectory, not {count}")
    if count > MOST_TRAJECTORIES:
        raise UsageError(f"a workload has at most {MOST_TRAJECTORIES:,} trajectories, not {count:,}: they fill memory")
    return list(_trajectories(spec, seed, count))


def about(name: str, *, seed: int = 0, trajectories: int | None = None) -> str:
    """Return the sentence for a file of such a workload: that it is generated, from what, and every source.

    Raises:
        UsageError: as `generate`.
    """
    spec = workload_spec(name)
    count = spec.trajectories if trajectories is None else trajectories
    scaled = "" if count == spec.trajectories else ", scaled by number of trajectories"
    sources = "; ".join(f"{field}: {source.kind}, {source.text}" for field, source in spec.sources.items())
    return (
        f"Generated, not recorded: agentbatch workload {name} --seed {seed} --trajectories {count}, {spec.title} "
        f"(arXiv:2611.16661){scaled}. {sources}. Footprint: {INFERRED}."
    )


def _trajectories(spec: WorkloadSpec, seed: int, count: int) -> Iterator[TraceTrajectory]:
    def stream(quantity: str) -> random.Random:
        return random.Random(f"agentbatch workload {spec.name} {seed} {quantity}")  # noqa: S311 - no secret

    def drawn(quantity: str, groups: Sequence[int], spread: Spread) -> list[float]:
        return weights(stream(quantity), groups, between=spread.between, within=spread.within)

    def total(of_all: int) -> int:
        return (2 * of_all * count + spec.trajectories) // (2 * spec.trajectories)  # rounded, halves up

    singles = [1] * count
    turns = apportion(total(spec.requests), drawn("turns", singles, Spread(within=spec.turns_sigma)))
    outputs = apportion(total(spec.output_tokens), drawn("outputs", turns, spec.outputs))
    tasks = apportion(count * spec.task_tokens, drawn("tasks", singles, Spread(within=spec.task_sigma)))
    gaps = [number - 1 for number in turns]
    prefix = spec.system_tokens + spec.tool_tokens
    left = round(count * balanced_context(spec.r_bal)) - count * prefix - sum(tasks) - sum(outputs)
    answers = apportion(left, drawn("answers", gaps, spec.answers))
    seconds: list[float | None] = [None] * sum(gaps)
    if spec.stages is not None:
        median_s, cap_s = spec.stages.median_s, spec.stages.cap_s
        shares = drawn("stages", gaps, spec.stages.spread)
        seconds = [round(min(cap_s, median_s * share), 3) for share in shares]

    digits = max(4, math.ceil(math.log10(count + 1)))
    turn_at = gap_at = 0
    for number, (length, task) in enumerate(zip(turns, tasks, strict=True)):
        yield TraceTrajectory(
            id=f"{spec.name}-{number:0{digits}}",
            domain=spec.name,
            system_tokens=spec.system_tokens,
            tool_tokens=spec.tool_tokens,
            turns=_turns(
                prefix + task,
                outputs[turn_at : turn_at + length],
                answers[gap_at : gap_at + length - 1],
                seconds[gap_at : gap_at + length - 1],
            ),
        )
        turn_at += length
        gap_at += length - 1


def _turns(
    prompt: int, outputs: Sequence[int], answers: Sequence[int], seconds: Sequence[float | None]
) -> tuple[TraceTurn, ...]:
    made = []
    for output, answer, env_s in zip(outputs, (*answers, 0), (*seconds, None), strict=True):
        made.append(TraceTurn(prompt_tokens=prompt, output_tokens=output, env_s=env_s))
        prompt += output + answer
    return tuple(made)
