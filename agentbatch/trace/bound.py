"""The makespan that no schedule could beat: the largest of three kinds of work that cannot be avoided."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping

from agentbatch.trace.ledger import Ledger


def lower_bound_s(ledger: Ledger) -> float | None:
    """Return the largest of environment work / CE, engine work at perfect reuse / workers and longest chain, seconds.

    Taken from the run's `WorkloadKnown` where it has one. Otherwise from what was measured: seconds that environment
    slots were held, per resource, and for each trajectory the seconds it was in inference or held a slot; without an
    engine part, and with whatever queueing inside the server those turns met. None where nothing is known.
    """
    ce = _most_slots(ledger)
    known = ledger.workload
    environment_s = _environment_held_s(ledger) if known is None else known.environment_s
    parts = [work_s / ce[resource] for resource, work_s in environment_s.items() if ce.get(resource, 0) > 0]
    if known is None:
        parts += _chains_s(ledger)
    else:
        parts.append(known.longest_chain_s)
        if known.engine_s is not None:
            parts.append(known.engine_s / max(1, known.workers))
    return max(parts, default=None)


def _most_slots(ledger: Ledger) -> dict[str, int]:
    """Return the largest limit of each resource that was ever in force."""
    limits: list[Mapping[str, int]] = [] if ledger.started is None else [ledger.started.ce]
    limits += [change.ce for change in ledger.limits]
    return {name: max(ce.get(name, 0) for ce in limits) for ce in limits for name in ce}


def _environment_held_s(ledger: Ledger) -> dict[str, float]:
    held: defaultdict[str, list[float]] = defaultdict(list)
    for job in ledger.jobs:
        if job.granted_s is not None:
            held[job.resource].append(job.ended_s - job.granted_s)
    return {resource: math.fsum(spans) for resource, spans in held.items()}


def _chains_s(ledger: Ledger) -> Iterator[float]:
    """Yield each trajectory's busy seconds, with its children's; time in which two things ran counts once."""
    busy: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for turn in ledger.turns:
        busy[ledger.root(turn.label)].append((turn.started_s, turn.ended_s))
    for job in ledger.jobs:
        if job.granted_s is not None:
            busy[ledger.root(job.label)].append((job.granted_s, job.ended_s))
    return (covered_s(spans) for spans in busy.values())


def covered_s(spans: list[tuple[float, float]]) -> float:
    """Return how many seconds at least one of `spans`, each (start, end), covers."""
    pieces: list[float] = []
    reached = -math.inf
    for start, end in sorted(spans):
        if end > reached:
            pieces.append(end - max(start, reached))
            reached = end
    return math.fsum(pieces)
