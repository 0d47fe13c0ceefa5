"""The requests that decode together, advanced a whole stretch of steps at a time.

A stretch runs until the next request ends, until KV runs out, or until somebody cuts it at the next step boundary; its
end follows in closed form from `StepCost`, so a stretch of a thousand steps costs one event.
"""

from __future__ import annotations

import heapq

from agentbatch.sim.cache import Lease
from agentbatch.sim.cost import StepCost
from agentbatch.sim.match import Sought
from agentbatch.sim.records import Request
from agentbatch.sim.reserve import CLIP_TOKENS


class Entry:
    """One live request of a worker, from submission to its end."""

    __slots__ = (
        "aborted", "cached_tokens", "finish_step", "generated_tokens", "join_step", "lease", "max_new_tokens",
        "prefilled_tokens", "request", "retracted", "seq", "sought", "ticket",
    )  # fmt: skip

    def __init__(self, request: Request, seq: int, max_new_tokens: int) -> None:
        self.request = request
        self.seq = seq
        self.max_new_tokens = max_new_tokens
        self.sought = Sought(request.prompt)
        self.lease: Lease | None = None
        self.prefilled_tokens = 0
        self.cached_tokens = 0  # of the first admission
        self.generated_tokens = 0  # output before it joined the batch, or was retracted
        self.join_step: int | None = None
        self.finish_step = 0
        self.ticket = 0  # of its last joining
        self.retracted = False
        self.aborted = False

    @property
    def rid(self) -> object:
        """The request's name."""
        return self.request.rid

    @property
    def input_tokens(self) -> int:
        """Tokens to prefill: the prompt and what was generated before a retraction."""
        return self.request.prompt_tokens + self.generated_tokens

    @property
    def new_tokens(self) -> int:
        """Output tokens kept free for it as it is admitted."""
        return min(self.max_new_tokens - self.generated_tokens, CLIP_TOKENS)


class DecodeBatch:
    """Running requests past their prefill; `context_tokens` is Σcontext of the next step."""

    def __init__(self, cost: StepCost) -> None:
        self._cost = cost
        self._ends: list[tuple[int, int, int, Entry]] = []
        self._tickets = 0
        self._members: dict[Entry, None] = {}  # in order of joining
        self._estimated: dict[Entry, None] = {}  # those whose reserve is not simply what they have left
        self._left_steps = 0  # Σ finish_step over the others
        self._start_s: float | None = None
        self._planned = 0
        self.context_tokens = 0
        self.steps = 0
        self.end_s = 0.0

    @property
    def size(self) -> int:
        """How many requests decode."""
        return len(self._members)

    def join(self, entry: Entry) -> None:
        """Add a request that has its next token and wants more; between stretches only."""
        entry.join_step = self.steps
        entry.finish_step = self.steps + entry.request.output_tokens - entry.generated_tokens
        self._members[entry] = None
        if entry.request.max_new_tokens is None and entry.new_tokens < CLIP_TOKENS:
            self._left_steps += entry.finish_step
        else:
            self._estimated[entry] = None
        self.context_tokens += entry.input_tokens
        self._tickets += 1
        entry.ticket = self._tickets
        heapq.heappush(self._ends, (entry.finish_step, entry.seq, entry.ticket, entry))

    def leave(self, entry: Entry) -> int:
        """Take a request out, ended, retracted or aborted; between stretches only. Returns the steps it took."""
        if entry.join_step is None:
            raise AssertionError("left a batch it had not joined")
        steps = self.steps - entry.join_step
        del self._members[entry]
        if entry in self._estimated:
            del self._estimated[entry]
        else:
            self._left_steps -= entry.finish_step
        self.context_tokens -= entry.input_tokens + steps
        entry.join_step = None
        return steps

    def reserve_tokens(self, ratio: float) -> float:
        """Return the output tokens that admissions leave free for the members (PrefillAdder's offset)."""
        reserve: float = self._left_steps - (len(self._members) - len(self._estimated)) * self.steps
        for entry in self._estimated:
            left = min(entry.max_new_tokens - self.output(entry), CLIP_TOKENS)
            reserve += left if entry.request.max_new_tokens is None else left * ratio
        return reserve

    def retraction_order(self) -> list[Entry]:
        """Return the members, whom to retract first at the end: least output, then longest prompt, then latest."""
        return sorted(
            self._members, key=lambda entry: (self.output(entry), -entry.request.prompt_tokens), reverse=True
        )

    def outputs(self) -> tuple[int, int]:
        """Return the members' output tokens so far and those they may have."""
        return (
            sum(self.output(entry) for entry in self._members), sum(entry.max_new_tokens for entry in self._members),
        )  # fmt: skip

    def begin(self, now_s: float, most_steps: int) -> None:
        """Start a stretch of at most `most_steps` >= 1 that lasts until the next request ends."""
        while not _decodes(self._ends[0]):
            heapq.heappop(self._ends)
        self._start_s = now_s
        self._plan(min(self._ends[0][0] - self.steps, most_steps))

    def cut(self, now_s: float) -> None:
        """End the running stretch at the first step boundary at or after `now_s`, one step at least."""
        if self._start_s is None:
            raise AssertionError("no stretch to cut")
        steps = self._done(now_s)
        if steps == 0 or self._start_s + self._cost.decode_s(self.size, self.context_tokens, steps) < now_s:
            steps += 1
        if steps < self._planned:
            self._plan(steps)

    @property
    def planned_steps(self) -> int:
        """Steps of the running stretch."""
        return self._planned

    def complete(self) -> list[Entry]:
        """End the stretch and return the requests that have all their tokens, in order of submission."""
        self.steps += self._planned
        self.context_tokens += self.size * self._planned
        self._start_s = None
        ended = []
        while self._ends and (self._ends[0][0] <= self.steps or not _decodes(self._ends[0])):
            end = heapq.heappop(self._ends)
            if _decodes(end):
                ended.append(end[3])
        return ended

    def produced(self, entry: Entry, now_s: float) -> int:
        """Return how many output tokens a request has by `now_s`, those from its prefills included."""
        if entry.join_step is None:
            return entry.generated_tokens
        return self.output(entry) + self._done(now_s)

    def output(self, entry: Entry) -> int:
        """Return how many output tokens a request has, the running stretch left out."""
        return entry.generated_tokens + (0 if entry.join_step is None else self.steps - entry.join_step)

    def pending_tokens(self, now_s: float) -> int:
        """Return the tokens that the running stretch has produced by `now_s`."""
        return self.size * self._done(now_s)

    def _done(self, now_s: float) -> int:
        if self._start_s is None:
            return 0
        steps = self._cost.decode_steps_by(self.size, self.context_tokens, now_s - self._start_s)
        return min(steps, self._planned)

    def _plan(self, steps: int) -> None:
        self._planned = steps
        start_s = 0.0 if self._start_s is None else self._start_s
        self.end_s = start_s + self._cost.decode_s(self.size, self.context_tokens, steps)


def _decodes(end: tuple[int, int, int, Entry]) -> bool:
    """Tell whether this end is still to come: its request has not left since."""
    return end[3].join_step is not None and end[3].ticket == end[2]
