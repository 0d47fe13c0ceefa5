"""Trajectories from a trace or from the record of a run: what a batch did becomes a workload again.

A run's trajectory becomes a trace's where it ended well and its server counted tokens; others are left out and counted,
since where they stopped says nothing about how long such tasks get. Of one that stays:

- its turns that ended well, in the order in which they started, with their prompt and output tokens, `infer_s` from
  launch to the last byte, and `ttft_s` where streamed; turns of its children stand among them by name (`role`);
- `env_s` of a turn is the time that environment slots were held for the jobs asked for after it, waits not counted, and
  `env_name` their resource (resources, where there were several); jobs before the first turn are `env_prepare_s`;
- `user_s` is what is left of the gap before the next turn when nothing of it was a turn, a job or a wait for a slot: a
  person, or the harness's own code. Gaps below `GAP_WALL_S` of wall time are the runtime's own and left out.

How long the beginning is that prompts share is not recorded, so `system_tokens` is 0.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from agentbatch.errors import TraceError
from agentbatch.events import JobEnded, TurnEnded
from agentbatch.trace.ledger import Ledger
from agentbatch.trace.lines import Line, first_line, parse
from agentbatch.trace.run import RunFile, read_run
from agentbatch.trace.workload import TraceTrajectory, TraceTurn, read_workload

GAP_WALL_S = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class Converted:
    """The trajectories of a file, and what was left out of it."""

    trajectories: tuple[TraceTrajectory, ...]
    not_ok: int = 0
    """Trajectories that failed, were cancelled or never ended."""
    uncounted: int = 0
    """Trajectories that ended well, with a turn whose tokens the server did not count, or without any turn."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about what was left out, for people."""
        notes = []
        if self.not_ok:
            notes.append(
                f"{self.not_ok} trajectories of the run did not end well and were left out; if the run was stopped "
                "before its end, the long ones are among them, and lengths come out too short"
            )
        if self.uncounted:
            notes.append(f"{self.uncounted} trajectories without token counts for every turn were left out")
        return tuple(notes)


def read_trajectories(path: str | os.PathLike[str]) -> list[TraceTrajectory]:
    """Read the trajectories of a trace, or those of a run file that ended well.

    Raises:
        TraceError: the file does not read as either, or no trajectory of the run can be used.
    """
    return list(read_converted(path).trajectories)


def read_converted(path: str | os.PathLike[str]) -> Converted:
    """Read like `read_trajectories`, and say what was left out.

    Raises:
        TraceError: likewise.
    """
    first = first_line(path)
    if first is None or not _is_event(first):
        return Converted(trajectories=tuple(read_workload(path)))
    run = read_run(path)
    converted = convert(run)
    if not converted.trajectories:
        raise TraceError(
            f"{os.fspath(path)} holds no trajectory to go by: {converted.not_ok} did not end well, "
            f"{converted.uncounted} have no token counts (the server must report usage); take another run, or a trace"
        )
    return converted


def _is_event(line: Line) -> bool:
    try:
        record = parse(line.data)
    except ValueError:
        return False
    return isinstance(record, dict) and "event" in record


def convert(run: RunFile) -> Converted:
    """Make a workload of a run, in order of submission; see the top of this file for the rules."""
    ledger = Ledger.of(run.events)
    turns: dict[str, list[TurnEnded]] = defaultdict(list)
    for turn in ledger.turns:
        if turn.outcome == "ok":
            turns[ledger.root(turn.label)].append(turn)
    jobs: dict[str, list[JobEnded]] = defaultdict(list)
    for job in ledger.jobs:
        jobs[ledger.root(job.label)].append(job)

    least_gap_s = GAP_WALL_S * (ledger.started.speedup if ledger.started else 1.0)
    domain = ledger.started.run if ledger.started else "run"
    made: list[TraceTrajectory] = []
    not_ok = uncounted = 0
    keys: dict[str, int] = defaultdict(int)
    for admitted in sorted(ledger.admitted.values(), key=lambda one: (one.submitted_s, one.at_s)):
        ended = ledger.ended.get(admitted.label)
        if ended is None or ended.outcome != "ok":
            not_ok += 1
            continue
        own = sorted(turns[admitted.label], key=lambda one: (one.started_s, one.ended_s))
        if not own or any(one.prompt_tokens is None or one.output_tokens is None for one in own):
            uncounted += 1
            continue
        keys[admitted.key] += 1
        name = admitted.key if keys[admitted.key] == 1 else admitted.label
        try:
            made.append(_trajectory(name, domain, admitted.label, own, jobs[admitted.label], least_gap_s=least_gap_s))
        except ValidationError as error:
            what = error.errors(include_url=False)[0]["msg"]
            raise TraceError(f"{run.path}: trajectory {admitted.key!r} has a turn that cannot be: {what}") from error
    not_ok += ledger.unfinished - sum(label not in ledger.ended for label in ledger.admitted)  # never reached
    return Converted(trajectories=tuple(made), not_ok=not_ok + len(ledger.never_admitted), uncounted=uncounted)


def _trajectory(
    name: str, domain: str, root: str, turns: Sequence[TurnEnded], jobs: Sequence[JobEnded], *, least_gap_s: float
) -> TraceTrajectory:
    """Make one trajectory of its turns, in order, and its jobs."""
    before, after = _by_turn(turns, [job for job in jobs if job.granted_s is not None])
    gaps = _gaps_s(turns, jobs)
    records = tuple(
        _turn(turn, after[place], _role(turn.label, root), gaps[place] if gaps[place] >= least_gap_s else None)
        for place, turn in enumerate(turns)
    )
    prepare_s = sum(map(_held_s, before)) if before else None
    return TraceTrajectory(id=name or root, domain=domain, turns=records, env_prepare_s=prepare_s)


def _by_turn(turns: Sequence[TurnEnded], jobs: Sequence[JobEnded]) -> tuple[list[JobEnded], list[list[JobEnded]]]:
    """Return the jobs before the first turn, and those asked for after each: the last that had ended by then.

    A child's job follows its own turns; before its first one it follows whatever turn of its trajectory ended last.
    """
    before: list[JobEnded] = []
    after: list[list[JobEnded]] = [[] for _ in turns]
    everywhere = sorted((turn.ended_s, place) for place, turn in enumerate(turns))
    own: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for ended_s, place in everywhere:
        own[turns[place].label].append((ended_s, place))
    for job in jobs:
        found = _last_by(own[job.label], job.asked_s)
        if found is None:
            found = _last_by(everywhere, job.asked_s)
        (before if found is None else after[found]).append(job)
    return before, after


def _last_by(ends: Sequence[tuple[float, int]], at_s: float) -> int | None:
    found = bisect_right(ends, at_s, key=lambda end: end[0])
    return ends[found - 1][1] if found else None


def _turn(turn: TurnEnded, jobs: Sequence[JobEnded], role: str | None, gap_s: float | None) -> TraceTurn:
    resources = tuple(dict.fromkeys(job.resource for job in jobs))
    return TraceTurn(
        prompt_tokens=turn.prompt_tokens or 0,
        output_tokens=turn.output_tokens or 0,
        infer_s=max(0.0, turn.ended_s - turn.started_s),
        ttft_s=None if turn.first_byte_s is None else max(0.0, turn.first_byte_s - turn.started_s),
        env_s=sum(map(_held_s, jobs)) if jobs else None,
        env_name=resources[0] if len(resources) == 1 else resources or None,
        env_calls=sum(job.operations for job in jobs) if jobs else None,
        user_s=gap_s,
        role=role,
    )


def _held_s(job: JobEnded) -> float:
    return 0.0 if job.granted_s is None else max(0.0, job.ended_s - job.granted_s)


def _role(label: str, root: str) -> str | None:
    return None if label == root else label.removeprefix(f"{root}/")


def _gaps_s(turns: Sequence[TurnEnded], jobs: Sequence[JobEnded]) -> list[float]:
    """Return, for each turn, how long before the next its trajectory had no turn, no job and no wait for a slot.

    0 after the last turn.
    """
    waiting = sorted(jobs, key=lambda job: job.asked_s, reverse=True)
    busy_until_s = 0.0
    gaps = []
    for place, turn in enumerate(turns):
        busy_until_s = max(busy_until_s, turn.ended_s)
        if place + 1 == len(turns):
            gaps.append(0.0)
            break
        next_s = turns[place + 1].started_s
        while waiting and waiting[-1].asked_s < next_s:
            busy_until_s = max(busy_until_s, waiting.pop().ended_s)
        gaps.append(max(0.0, next_s - busy_until_s))
    return gaps
