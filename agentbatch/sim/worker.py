"""One SGLang worker as a machine on the caller's clock: what it would do, and exactly when.

Lives here: the scheduling loop. Must not: clocks, randomness, I/O, HTTP, labels.
The loop follows SGLang's `_get_new_batch_prefill_raw` (sglang.md). At each step boundary: the chunked
request goes on; then the waiting queue is walked in order and requests are admitted while the chunk budget,
the running limit and both pools allow; the first refusal ends the walk. Whatever was admitted is prefilled
in one step; only when nothing was, the running requests decode. Requests submitted for the same instant
meet the same boundary; one submitted in the middle of a decode stretch ends it at its next step.

The simulator drives it on virtual time, the emulator on scaled wall time: call `advance` at
`next_event_s()` or later. How often it is called changes no result.
"""

from __future__ import annotations

import math
from collections.abc import Hashable

from agentbatch.errors import UsageError
from agentbatch.sim.batch import DecodeBatch, Entry
from agentbatch.sim.cache import PrefixCache
from agentbatch.sim.records import Finished, FirstToken, Request, WorkerConfig, WorkerEvent, WorkerStatistics
from agentbatch.sim.waiting import WaitingQueue


class Worker:
    """One modelled replica. Not thread-safe; deterministic in the sequence of calls."""

    def __init__(self, config: WorkerConfig) -> None:
        self.config = config
        self._cache = PrefixCache(
            kv_tokens=config.kv_tokens,
            state_slots=config.state_slots,
            slots_per_request=config.slots_per_request,
            max_states_per_path=config.max_states_per_path,
        )
        self._queue: WaitingQueue[Entry] = WaitingQueue()
        self._batch = DecodeBatch(config.cost)
        self._live: dict[Hashable, Entry] = {}
        self._chunked: Entry | None = None
        self._prefill: list[tuple[Entry, int]] = []  # the running prefill step: (request, tokens)
        self._step_end_s: float | None = None  # end of the running step, None between steps
        self._now_s = -math.inf
        self._free_s = -math.inf  # when the engine last became free
        self._head_refused = False  # nothing can be admitted before something is given back
        self._aborting: list[Entry] = []
        self._events: list[WorkerEvent] = []
        self._submitted = self._running = self._peak_running = 0
        self._admitted = self._finished = self._aborted = 0
        self._input_tokens = self._hit_tokens = self._output_tokens = self._prefill_steps = 0

    def submit(self, request: Request, now_s: float) -> None:
        """Queue `request` at `now_s`.

        Raises:
            UsageError: the request can never fit in the KV pool, or its rid is live already.
        """
        tokens = request.prompt_tokens + request.output_tokens
        if tokens > self.config.kv_tokens:
            raise UsageError(f"the request needs {tokens} tokens ({request.prompt_tokens} prompt + "
                             f"{request.output_tokens} output) and the KV pool holds {self.config.kv_tokens}")
        self._run(now_s, decide_at_now=False)
        if request.rid in self._live:
            raise UsageError(f"request {request.rid!r} is live already; give each its own rid")
        entry = Entry(request, self._submitted)
        self._submitted += 1
        self._live[request.rid] = entry
        self._queue.add(entry)
        if self._step_end_s is None:
            self._free_s = now_s
        elif not self._prefill and not self._head_refused:
            self._cut(now_s)

    def abort(self, rid: Hashable, now_s: float) -> bool:
        """Withdraw a request; a waiting one at once, a running one at the next step boundary.

        Returns:
            False when it has ended already or was never submitted.
        """
        self._run(now_s, decide_at_now=False)
        entry = self._live.pop(rid, None)
        if entry is None:
            return False
        self._aborted += 1
        if entry.lease is None:
            self._queue.remove(entry)
            self._head_refused = False
            if self._queue and self._step_end_s is not None and not self._prefill:
                self._cut(now_s)
            return True
        entry.aborted = True
        self._aborting.append(entry)
        if self._step_end_s is None:
            self._drop_aborted()
        elif not self._prefill:
            self._cut(now_s)
        return True

    def advance(self, now_s: float) -> list[WorkerEvent]:
        """Run to `now_s` and return what happened since the last call, in order of time."""
        self._run(now_s, decide_at_now=True)
        events, self._events = self._events, []
        return events

    def next_event_s(self) -> float:
        """Return when `advance` is due next: infinity when idle, the present when events wait to be fetched."""
        if self._events:
            return self._now_s
        if self._step_end_s is not None:
            return self._step_end_s
        return self._free_s if self._queue or self._running else math.inf

    def produced(self, rid: Hashable, now_s: float) -> int:
        """Return how many output tokens of a request exist at `now_s`; 0 before its first. Changes nothing.

        Raises:
            UsageError: the request was never submitted, was aborted, or its `Finished` has been fetched.
        """
        entry = self._live.get(rid)
        if entry is not None:
            return self._batch.produced(entry, now_s)
        for event in self._events:
            if isinstance(event, Finished) and event.rid == rid:
                return event.output_tokens
        raise UsageError(f"request {rid!r} is not live")

    def flush(self) -> bool:
        """Forget all cached prefixes and states; refused (False) while requests wait or run, as in SGLang."""
        if self._live or self._running:
            return False
        self._cache.flush()
        return True

    def statistics(self) -> WorkerStatistics:
        """Return counts and levels as of the last call that carried a time."""
        states = self._cache.states
        return WorkerStatistics(
            waiting=len(self._queue), running=self._running, peak_running=self._peak_running,
            kv_total=self.config.kv_tokens, kv_free=self._cache.free_tokens,
            kv_evictable=self._cache.evictable_tokens,
            states_total=states.slots if states else 0, states_held=states.held if states else 0,
            states_cached=states.cached if states else 0,
            states_evictable=states.cached - states.locked if states else 0,
            admitted=self._admitted, finished=self._finished, aborted=self._aborted,
            input_tokens=self._input_tokens, hit_tokens=self._hit_tokens, output_tokens=self._output_tokens,
            evicted_tokens=self._cache.evicted_tokens, evicted_states=self._cache.evicted_states,
            prefill_steps=self._prefill_steps, decode_steps=self._batch.steps,
        )

    def __repr__(self) -> str:
        return f"<Worker waiting={len(self._queue)} running={self._running}>"

    def _run(self, now_s: float, *, decide_at_now: bool) -> None:
        """Complete every step that ends by `now_s`; start the step due at `now_s` itself only if told to."""
        if now_s < self._now_s:
            raise UsageError(f"a worker's clock only moves forward: it was {self._now_s} s, now {now_s} s")
        self._now_s = now_s
        while True:
            if self._step_end_s is not None:
                if self._step_end_s > now_s:
                    return
                self._complete(self._step_end_s)
            if not (self._queue or self._running):
                return
            if self._free_s > now_s or (self._free_s == now_s and not decide_at_now):
                return
            self._decide(self._free_s)

    def _decide(self, now_s: float) -> None:
        """Choose the next step: prefill if anything can be prefilled, else decode."""
        budget = self.config.chunked_prefill_tokens
        if self._chunked is not None:
            budget -= self._take_chunk(self._chunked, budget)
        while budget > 0 and not self._head_refused:
            entry = self._queue.head()
            if entry is None:
                break
            if not self._admit(entry):
                self._head_refused = True
                break
            budget -= self._take_chunk(entry, budget)
        if self._prefill:
            parts = [(tokens, entry.prefilled_tokens) for entry, tokens in self._prefill]
            self._step_end_s = now_s + self.config.cost.prefill_s(parts)
            self._prefill_steps += 1
        elif self._batch.size:
            self._batch.begin(now_s)
            self._step_end_s = self._batch.end_s
        else:
            raise AssertionError("a request waits on an empty worker")

    def _admit(self, entry: Entry) -> bool:
        request = entry.request
        if self._running >= self.config.max_running:
            return False
        lease = self._cache.acquire(request.prompt, request.prompt_tokens, request.output_tokens)
        if lease is None:
            return False
        self._queue.remove(entry)
        entry.lease = lease
        entry.prefilled_tokens = lease.cached_tokens
        self._running += 1
        self._peak_running = max(self._peak_running, self._running)
        self._admitted += 1
        self._input_tokens += request.prompt_tokens
        self._hit_tokens += lease.cached_tokens
        return True

    def _take_chunk(self, entry: Entry, budget: int) -> int:
        left = entry.request.prompt_tokens - entry.prefilled_tokens
        tokens = min(left, budget)
        self._chunked = entry if tokens < left else None
        self._prefill.append((entry, tokens))
        return tokens

    def _complete(self, at_s: float) -> None:
        self._step_end_s = None
        self._free_s = at_s
        if self._prefill:
            self._complete_prefill(at_s)
        else:
            for entry in self._batch.complete():
                self._batch.leave(entry)
                if not entry.aborted:
                    self._finish(entry, at_s)
                    self._head_refused = False
        self._drop_aborted()

    def _complete_prefill(self, at_s: float) -> None:
        done, self._prefill = self._prefill, []
        self._head_refused = False
        for entry, tokens in done:
            entry.prefilled_tokens += tokens
            if entry.aborted or entry.prefilled_tokens < entry.request.prompt_tokens or entry.lease is None:
                continue
            self._cache.commit(entry.lease, entry.request.prompt)
            self._events.append(FirstToken(rid=entry.request.rid, at_s=at_s))
            if entry.request.output_tokens == 1:
                self._finish(entry, at_s)
            else:
                self._batch.join(entry)

    def _finish(self, entry: Entry, at_s: float) -> None:
        request, lease = entry.request, entry.lease
        if lease is None:
            raise AssertionError(f"request {request.rid!r} finished without having run")
        self._cache.finish(lease, [*request.prompt, *request.reply])
        self._running -= 1
        self._finished += 1
        self._output_tokens += request.output_tokens
        del self._live[request.rid]
        self._events.append(Finished(
            rid=request.rid, at_s=at_s, prompt_tokens=request.prompt_tokens,
            cached_tokens=lease.cached_tokens, output_tokens=request.output_tokens,
        ))

    def _drop_aborted(self) -> None:
        for entry in self._aborting:
            if entry is self._chunked:
                self._chunked = None
            if entry.join_step is not None:
                self._batch.leave(entry)
            if entry.lease is not None:
                self._cache.release(entry.lease)
            self._running -= 1
            self._head_refused = False
        self._aborting.clear()

    def _cut(self, now_s: float) -> None:
        self._batch.cut(now_s)
        self._step_end_s = self._batch.end_s
