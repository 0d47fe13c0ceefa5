"""The requests that decode together, advanced a whole stretch of steps at a time.

A stretch runs until the next request ends or until somebody cuts it at the next step boundary; its end
follows in closed form from `StepCost`, so a stretch of a thousand steps costs one event.
"""

from __future__ import annotations

import heapq

from agentbatch.sim.cache import Lease
from agentbatch.sim.cost import StepCost
from agentbatch.sim.records import Request


class Entry:
    """One live request of a worker, from submission to its end."""

    __slots__ = ("aborted", "finish_step", "join_step", "lease", "prefilled_tokens", "request", "seq")

    def __init__(self, request: Request, seq: int) -> None:
        self.request = request
        self.seq = seq
        self.lease: Lease | None = None
        self.prefilled_tokens = 0
        self.join_step: int | None = None
        self.finish_step = 0
        self.aborted = False

    @property
    def rid(self) -> object:
        """The request's name."""
        return self.request.rid


class DecodeBatch:
    """Running requests past their prefill; `context_tokens` is Σcontext of the next step."""

    def __init__(self, cost: StepCost) -> None:
        self._cost = cost
        self._ends: list[tuple[int, int, Entry]] = []
        self._start_s: float | None = None
        self._planned = 0
        self.size = 0
        self.context_tokens = 0
        self.steps = 0
        self.end_s = 0.0

    def join(self, entry: Entry) -> None:
        """Add a request that has its first token and wants more; between stretches only."""
        entry.join_step = self.steps
        entry.finish_step = self.steps + entry.request.output_tokens - 1
        self.size += 1
        self.context_tokens += entry.request.prompt_tokens + 1
        heapq.heappush(self._ends, (entry.finish_step, entry.seq, entry))

    def leave(self, entry: Entry) -> None:
        """Take a request out, ended or aborted; between stretches only."""
        if entry.join_step is None:
            raise AssertionError("left a batch it had not joined")
        self.size -= 1
        self.context_tokens -= entry.request.prompt_tokens + 1 + self.steps - entry.join_step
        entry.join_step = None

    def begin(self, now_s: float) -> None:
        """Start a stretch that lasts until the next request ends; the batch is not empty."""
        while self._ends[0][2].join_step is None:
            heapq.heappop(self._ends)
        self._start_s = now_s
        self._plan(self._ends[0][0] - self.steps)

    def cut(self, now_s: float) -> None:
        """End the running stretch at the first step boundary at or after `now_s`, one step at least."""
        if self._start_s is None:
            raise AssertionError("no stretch to cut")
        steps = self._done(now_s)
        if steps == 0 or self._start_s + self._cost.decode_s(self.size, self.context_tokens, steps) < now_s:
            steps += 1
        if steps < self._planned:
            self._plan(steps)

    def complete(self) -> list[Entry]:
        """End the stretch and return the requests that have all their tokens, in order of submission."""
        self.steps += self._planned
        self.context_tokens += self.size * self._planned
        self._start_s = None
        ended = []
        while self._ends and (self._ends[0][0] <= self.steps or self._ends[0][2].join_step is None):
            entry = heapq.heappop(self._ends)[2]
            if entry.join_step is not None:
                ended.append(entry)
        return ended

    def produced(self, entry: Entry, now_s: float) -> int:
        """Return how many output tokens a member has by `now_s`, the one from its prefill included."""
        if entry.join_step is None:
            return 0
        return 1 + self.steps - entry.join_step + self._done(now_s)

    def _done(self, now_s: float) -> int:
        if self._start_s is None:
            return 0
        steps = self._cost.decode_steps_by(self.size, self.context_tokens, now_s - self._start_s)
        return min(steps, self._planned)

    def _plan(self, steps: int) -> None:
        self._planned = steps
        start_s = 0.0 if self._start_s is None else self._start_s
        self.end_s = start_s + self._cost.decode_s(self.size, self.context_tokens, steps)
