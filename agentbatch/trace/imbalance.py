"""How unevenly the workers were used (spec §8, Eq. 17–18 and 20).

With W workers d = Σ|N_w − N̄| / (2 (1 − 1/W) ΣN_w), which is 0 when all are alike, 1 when one has everything, and
|N1 − N2| / (N1 + N2) at W = 2.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from agentbatch.events import TurnEnded
from agentbatch.trace.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Placement:
    """Which turns ran on which worker."""

    workers: int
    """W: the workers the run was given, idle ones included; those seen where it names none of those seen."""
    turns: tuple[TurnEnded, ...]
    """The turns whose `worker` is one of them; one that no worker took (all attempts failed) is not among them."""
    unknown: int
    """Completed turns left out because their worker is unknown."""

    @classmethod
    def of(cls, ledger: Ledger) -> Placement:
        """Take the placement from a run's ledger; a gateway's URL stands aside for the workers it names."""
        named = frozenset(turn.worker for turn in ledger.turns if turn.worker)
        given = frozenset(ledger.started.workers if ledger.started is not None else ())
        workers = given if given and (not named or named & given) else named
        placed = tuple(turn for turn in ledger.turns if turn.worker in workers)
        completed = sum(turn.outcome == "ok" for turn in ledger.turns)
        return cls(len(workers), placed, completed - sum(turn.outcome == "ok" for turn in placed))


def imbalance(loads: Collection[int], workers: int) -> float:
    """Return d for the `loads` of `workers` >= 2 workers; idle ones may be left out, and no load at all gives 0."""
    total = sum(loads)
    if total == 0:
        return 0.0
    spread = sum(abs(workers * load - total) for load in loads) + (workers - len(loads)) * total
    return spread / (2 * (workers - 1) * total)


def request_imbalance(turns: Iterable[TurnEnded], workers: int) -> float | None:
    """Return β: d of the requests in flight, averaged over the time with more than one in flight.

    Exact: the loads are constant between two neighbouring starts or ends. None at W <= 1, and where two requests were
    never in flight together.
    """
    if workers <= 1:
        return None
    edges: list[tuple[float, int, str]] = []
    for turn in turns:
        if turn.ended_s > turn.started_s:
            edges.append((turn.started_s, 1, turn.worker))
            edges.append((turn.ended_s, -1, turn.worker))
    edges.sort()
    loads: Counter[str] = Counter()
    in_flight = 0
    since_s = 0.0
    spans: list[float] = []
    weighted: list[float] = []
    for at_s, step, worker in edges:
        if in_flight > 1 and at_s > since_s:
            spans.append(at_s - since_s)
            weighted.append((at_s - since_s) * imbalance(loads.values(), workers))
        loads[worker] += step
        in_flight += step
        since_s = at_s
    return math.fsum(weighted) / math.fsum(spans) if spans else None


def output_imbalance(turns: Iterable[TurnEnded], workers: int) -> float | None:
    """Return γ_out: d of the output tokens each worker generated; None at W <= 1, and where none are known."""
    if workers <= 1:
        return None
    tokens = output_by_worker(turns)
    return imbalance(tokens.values(), workers) if sum(tokens.values()) else None


def output_by_worker(turns: Iterable[TurnEnded]) -> Mapping[str, int]:
    """Return the output tokens of each worker that generated any."""
    tokens: Counter[str] = Counter()
    for turn in turns:
        tokens[turn.worker] += turn.output_tokens or 0
    return tokens
