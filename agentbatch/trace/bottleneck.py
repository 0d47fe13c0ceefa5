"""Which limit bound over a whole run: its events, told to the same account that a live batch keeps."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial

from agentbatch.events import JobEnded, TurnEnded
from agentbatch.policy.bottleneck import Bottleneck
from agentbatch.policy.whereabouts import Place, Whereabouts
from agentbatch.trace.ledger import Ledger

Step = tuple[float, int, Callable[[float], None]]
"""When, in which order at that time, and what."""


def run_bottleneck(ledger: Ledger) -> Bottleneck:
    """Return what bound over a whole run, children's time being their trajectory's; "unknown" without its limits.

    After a `resize` only the time since the last one counts: two limits have no verdict in common.

    Turns and jobs that had not ended when a run was killed are not in its record: their time counts as the harness's.
    """
    end_s = ledger.end_s
    if ledger.started is None or end_s is None or not ledger.started.ce or ledger.started.cs < 1:
        return Bottleneck(kind="unknown")
    whereabouts = Whereabouts({*ledger.started.ce, *(job.resource for job in ledger.jobs)}, window_s=math.inf)
    for at_s, _, step in sorted(_steps(ledger, whereabouts, end_s), key=lambda step: step[:2]):
        step(at_s)
    limits = max(ledger.limits, key=lambda change: change.at_s, default=ledger.started)
    return whereabouts.bottleneck(end_s, limits.cs, limits.ce, window=True)


def _steps(ledger: Ledger, whereabouts: Whereabouts, end_s: float) -> Iterator[Step]:
    places: defaultdict[str, Place] = defaultdict(whereabouts.place)
    yield from _admissions(ledger, whereabouts, places, end_s)
    yield from ((change.at_s, 6, whereabouts.begin_window) for change in ledger.limits)
    # sorted, so that the order of the events cannot change a digit
    for turn in sorted(ledger.turns, key=lambda turn: (turn.started_s, turn.ended_s, turn.label, turn.turn)):
        if turn.started_s <= turn.ended_s:
            yield from _turn(places[ledger.root(turn.label)], turn)
    for job in sorted(ledger.jobs, key=lambda job: (job.asked_s, job.ended_s, job.label, job.resource)):
        if job.asked_s <= (job.ended_s if job.granted_s is None else job.granted_s) <= job.ended_s:
            yield from _job(places[ledger.root(job.label)], job)


def _admissions(
    ledger: Ledger, whereabouts: Whereabouts, places: defaultdict[str, Place], end_s: float
) -> Iterator[Step]:
    waiting = 0

    def queue(by: int, at_s: float) -> None:
        nonlocal waiting
        waiting += by
        whereabouts.queued(waiting, at_s)

    for label in sorted(ledger.admitted.keys() | ledger.ended.keys()):
        admitted, ended = ledger.admitted.get(label), ledger.ended.get(label)
        at_s = admitted.at_s if admitted is not None else ended.admitted_s if ended is not None else None
        left_s = end_s if ended is None else ended.at_s
        if at_s is None or at_s > left_s:
            continue
        yield at_s, 0, places[label].enter
        yield left_s, 5, places[label].leave
        if admitted is not None and admitted.submitted_s < at_s:
            yield admitted.submitted_s, 0, partial(queue, 1)
            yield at_s, 5, partial(queue, -1)


def _turn(place: Place, turn: TurnEnded) -> Iterator[Step]:
    mark = 0.0

    def begin(at_s: float) -> None:
        nonlocal mark
        mark = place.turn_began(at_s)

    def end(at_s: float) -> None:
        place.turn_ended(mark, turn.started_s, at_s, turn.output_tokens, turn.outcome == "ok")

    yield turn.started_s, 1, begin
    yield turn.ended_s, 4, end


def _job(place: Place, job: JobEnded) -> Iterator[Step]:
    yield job.asked_s, 1, partial(place.job_asked, job.resource)
    if job.granted_s is None:
        yield job.ended_s, 4, partial(place.job_withdrew, job.resource)
    else:
        yield job.granted_s, 2, partial(place.job_granted, job.resource)
        yield job.ended_s, 4, partial(place.job_ended, job.resource)
