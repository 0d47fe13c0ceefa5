"""Who gets onto the engine, and who is put off it again when KV runs out.

Lives here: the admission walk and its gates, the chunked request, retraction. Must not: time, events, what a step does.
After SGLang 0.5.23's PrefillAdder, `batch_is_full` and `retract_decode`: a request is admitted when
prompt beyond its hit + output (clipped) + a page < KV free and evictable, less what the running and the newly admitted
ones may still need. A refusal for lack of KV or of a free row ends all passes until a request leaves the batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from agentbatch.sim.batch import DecodeBatch, Entry
from agentbatch.sim.cache import PrefixCache
from agentbatch.sim.reserve import PAGE_TOKENS, RETRACT_STEPS, OutputShare
from agentbatch.sim.waiting import WaitingQueue


@dataclass(kw_only=True, slots=True)
class Admitted:
    """Counts of what was admitted, and how many run."""

    running: int = 0
    peak_running: int = 0
    admitted: int = 0
    input_tokens: int = 0
    hit_tokens: int = 0
    retractions: int = 0


class Admission:
    """Moves requests from the queue to the prefill step, and from the batch back to the queue.

    Args:
        max_running: most requests that run at once, prefill included.
        chunk_tokens: prefill budget of a step.
        cache, queue, batch: the worker's.
    """

    def __init__(
        self, *, max_running: int, chunk_tokens: int, cache: PrefixCache, queue: WaitingQueue, batch: DecodeBatch
    ) -> None:
        self.step: list[tuple[Entry, int]] = []  # the next prefill step, or the running one: (request, tokens)
        self.chunked: Entry | None = None
        self.full = False  # no pass before a request leaves the running batch (SGLang's batch_is_full)
        self.counts = Admitted()
        self.share = OutputShare()
        self._max_running = max_running
        self._chunk_tokens = chunk_tokens
        self._cache = cache
        self._queue = queue
        self._batch = batch

    def plan(self) -> None:
        """Fill `step`: the chunked request first, then whoever can be admitted."""
        budget = self._chunk_tokens
        if self.chunked is not None:
            budget -= self._take_chunk(self.chunked, budget)
        if self.step or self._pass_due():
            self._queue.prioritise()
            self._walk(budget)

    def retract(self) -> None:
        """Put running requests back to wait until the rest can take a step; one always stays."""
        order = self._batch.retraction_order()
        while self._cache.room_tokens < len(order) and len(order) > 1:
            entry = order.pop()
            output = self._batch.output(entry)
            self.leave(entry)
            entry.generated_tokens = output
            self._cache.make_free(len(order) * RETRACT_STEPS)
            entry.lease = None
            entry.retracted = True
            self.counts.retractions += 1
            self._queue.add(entry)
        outputs, limits = self._batch.outputs()
        self.share.retracted(outputs, limits, len(order))

    def leave(self, entry: Entry) -> None:
        """Take off a running request that has not ended, and give back what it holds."""
        if entry is self.chunked:
            self.chunked = None
        if entry.lease is None:
            raise AssertionError(f"request {entry.rid!r} does not run")
        if entry.join_step is not None:
            entry.lease.private_tokens += self._batch.leave(entry)
        self._cache.release(entry.lease)
        self.left()

    def left(self) -> None:
        """Note that a request left the engine."""
        self.counts.running -= 1
        self.full = False

    def _pass_due(self) -> bool:
        if self.full or not self._queue:
            return False
        self.full = self.counts.running >= self._max_running
        return not self.full

    def _walk(self, budget: int) -> None:
        """Admit from the front of the queue while everything allows it."""
        beside: float = self._batch.reserve_tokens(self.share.ratio)
        for entry, tokens in self.step:  # the chunked request
            beside += PAGE_TOKENS + tokens + (entry.new_tokens if entry is not self.chunked else 0)
        admitted = 0
        for entry in self._queue.entries:
            if budget <= 0:
                break
            if self.counts.running >= self._max_running:
                self.full = True
                break
            need = math.ceil(beside) + entry.new_tokens + PAGE_TOKENS
            lease = self._cache.acquire(entry.sought, entry.input_tokens, need)
            if lease is None:
                self.full = self.counts.running > 0
                break
            entry.lease = lease
            self._enter(entry, lease.cached_tokens)
            tokens = self._take_chunk(entry, budget)
            budget -= tokens
            admitted += 1
            beside += max(0, entry.prefilled_tokens + tokens - lease.node.end) + PAGE_TOKENS
            beside += entry.new_tokens if entry is not self.chunked else 0
            if beside >= self._cache.room_tokens:
                self.full = True
                break
        self._queue.admitted(admitted)

    def _enter(self, entry: Entry, cached_tokens: int) -> None:
        counts = self.counts
        entry.prefilled_tokens = cached_tokens
        counts.running += 1
        counts.peak_running = max(counts.peak_running, counts.running)
        if not entry.retracted:
            entry.cached_tokens = cached_tokens
            counts.admitted += 1
            counts.input_tokens += entry.request.prompt_tokens
            counts.hit_tokens += cached_tokens

    def _take_chunk(self, entry: Entry, budget: int) -> int:
        left = entry.input_tokens - entry.prefilled_tokens
        tokens = min(left, budget)
        self.chunked = entry if tokens < left else None
        self.step.append((entry, tokens))
        return tokens
