"""What serves where no engine is modelled: every turn takes its recorded seconds, however many are in flight.

For batches against a hosted API, whose own limits nobody outside knows. It stands where a `Fleet` stands, with the same
few methods. It has no workers, no cache and no first token: those figures are None.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf

from agentbatch.errors import UsageError
from agentbatch.sim.radix import Piece
from agentbatch.sim.records import Request, WorkerStatistics
from agentbatch.trace.workload import TraceTrajectory

NOTICE = (
    "turns take their recorded seconds however many are in flight: CS is not limited by a server; name a --preset to "
    "model one"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """A turn's recorded seconds are over."""

    rid: Hashable
    at_s: float
    prompt_tokens: int
    output_tokens: int
    cached_tokens: None = None


class RecordedServer:
    """Answers each request after the seconds that its turn took when it was recorded."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Request]] = []
        self._puts = 0

    def choose(self, label: str, prompt: Sequence[Piece], prompt_tokens: int) -> str:
        """Return the worker that takes the turn: none, which has no name."""
        return ""

    def submit(self, name: str, request: Request, now_s: float, infer_s: float | None) -> None:
        """Answer `request` after `infer_s`.

        Raises:
            UsageError: nobody recorded how long it took; `check_recorded` says so beforehand.
        """
        if infer_s is None:
            raise UsageError(f"request {request.rid!r} has no recorded seconds")
        self._puts += 1
        heappush(self._due, (now_s + infer_s, self._puts, request))

    def give_back(self, name: str) -> None:
        """Take note that a request ended: nothing is counted."""

    def next_event_s(self) -> float:
        """Return when the next request is answered; infinity where none is in flight."""
        return self._due[0][0] if self._due else inf

    def advance(self, now_s: float) -> list[Answered]:
        """Return what has been answered by `now_s`; of one instant, what was sent first."""
        answered = []
        while self._due and self._due[0][0] <= now_s:
            at_s, _, one = heappop(self._due)
            answered.append(
                Answered(rid=one.rid, at_s=at_s, prompt_tokens=one.prompt_tokens, output_tokens=one.output_tokens)
            )
        return answered

    def statistics(self) -> Mapping[str, WorkerStatistics]:
        """Return what each worker did: there is none."""
        return {}


def all_recorded(workload: Iterable[TraceTrajectory]) -> bool:
    """Return whether every turn says how long it took."""
    return all(turn.infer_s is not None for one in workload for turn in one.turns)


def check_recorded(workload: Sequence[TraceTrajectory]) -> None:
    """Refuse a workload of which some turns do not say how long they took.

    Raises:
        UsageError: says how many and names the first.
    """
    untimed = [
        (one.id, number) for one in workload for number, turn in enumerate(one.turns, 1) if turn.infer_s is None
    ]
    if untimed:
        key, number = untimed[0]
        turns = sum(len(one.turns) for one in workload)
        raise UsageError(
            f"{len(untimed):,} of {turns:,} turns have no infer_s, so that nobody knows how long they took (the first: "
            f"turn {number} of {key}): name a --preset to model the server"
        )
