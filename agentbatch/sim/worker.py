"""One SGLang worker as a machine on the caller's clock: what it would do, and exactly when.

Lives here: the scheduling loop. Must not: clocks, randomness, I/O, HTTP, what labels mean.
The loop follows SGLang 0.5.23's `_get_new_batch_prefill_raw` and `update_running_batch`. At each step boundary: the
chunked request goes on; then the waiting queue is put in order and walked, and requests are admitted while the chunk
budget, the running limit and KV allow; the first refusal ends the walk. One for lack of KV or of a free row also ends
all passes until a request leaves the running batch. Whatever was admitted is prefilled in one step; only when nothing
was, the running requests decode. When KV, eviction included, is too short for a decode step, requests are retracted to
the end of the queue: least output first, the last one never. Requests submitted for the same instant meet the same
boundary; one submitted in the middle of a decode stretch ends it at its next step.

Nothing can wait for ever: a request that alone exceeds the pool is refused by `submit`, so an idle worker admits its
first, and a lone request decodes to its end. Call `advance` at `next_event_s()` or later, on virtual or scaled
wall time; how often it is called changes no result.

Left out: mixed chunks, `max_prefill_tokens`; of overlap scheduling that arrivals and outputs are late, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from functools import partial

from agentbatch.errors import UsageError
from agentbatch.sim.admission import Admission
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
            state_mode=config.state_mode,
            max_states_per_path=config.max_states_per_path,
        )
        self._queue = WaitingQueue(config.schedule_policy, self._cache, config.labels)
        self._batch = DecodeBatch(config.cost)
        self._admission = Admission(
            max_running=config.max_running, chunk_tokens=config.chunked_prefill_tokens,
            cache=self._cache, queue=self._queue, batch=self._batch,
        )  # fmt: skip
        self._live: dict[Hashable, Entry] = {}
        self._step_end_s: float | None = None  # end of the running step, None between steps
        self._now_s = -math.inf
        self._free_s = -math.inf  # when the engine last became free
        self._aborting: list[Entry] = []
        self._late: list[Callable[[], None]] = []  # what the last step did to cache and rows, with overlap
        self._events: list[WorkerEvent] = []
        self._submitted = self._finished = self._aborted = self._output_tokens = self._prefill_steps = 0

    def submit(self, request: Request, now_s: float) -> None:
        """Queue `request` at `now_s`.

        Raises:
            UsageError: the request can never fit in the KV pool, or its rid is live already.
        """
        tokens, most = request.prompt_tokens + request.output_tokens, self.config.longest_request
        if tokens > most:
            raise UsageError(f"the request needs {tokens} tokens ({request.prompt_tokens} prompt + "
                             f"{request.output_tokens} output); the KV pool holds {self.config.kv_tokens}, and one "
                             f"request may take {most} of them")
        self._run(now_s, decide_at_now=False)
        if request.rid in self._live:
            raise UsageError(f"request {request.rid!r} is live already; give each its own rid")
        limit = request.output_tokens if request.max_new_tokens is None else request.max_new_tokens
        entry = Entry(request, self._submitted, min(limit, most - request.prompt_tokens))
        self._submitted += 1
        self._live[request.rid] = entry
        self._queue.add(entry)
        if self._step_end_s is None:
            self._free_s = now_s
        elif not self._admission.step and not self._admission.full:
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
            self._queue.withdraw(entry)
            return True
        entry.aborted = True
        self._aborting.append(entry)
        if self._step_end_s is None:
            self._drop_aborted()
        elif not self._admission.step:
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
        return self._free_s if self._queue or self._admission.counts.running else math.inf

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
        if self._live or self._admission.counts.running:
            return False
        self._cache.flush()
        return True

    def statistics(self) -> WorkerStatistics:
        """Return counts and levels as of the last call that carried a time."""
        states, labels, free = self._cache.states, self._queue.labels(), self._cache.free_tokens
        counts = self._admission.counts
        pending = self._batch.pending_tokens(self._now_s)  # their KV is taken at the end of the stretch
        return WorkerStatistics(
            waiting=len(self._queue), running=counts.running, peak_running=counts.peak_running,
            kv_total=self.config.kv_tokens, kv_free=max(0, free - pending),
            kv_evictable=self._cache.evictable_tokens - max(0, pending - free),
            states_total=states.slots if states else 0, states_held=states.held if states else 0,
            states_cached=states.cached if states else 0,
            states_evictable=states.cached - states.locked if states else 0,
            admitted=counts.admitted, finished=self._finished, aborted=self._aborted,
            input_tokens=counts.input_tokens, hit_tokens=counts.hit_tokens, output_tokens=self._output_tokens,
            evicted_tokens=self._cache.evicted_tokens, evicted_states=self._cache.evicted_states,
            prefill_steps=self._prefill_steps, decode_steps=self._batch.steps, retractions=counts.retractions,
            passes=self._queue.passes, matches=self._queue.matches, labels=labels.labels,
            relookups=labels.relookups, lookups_avoided=labels.avoided,
        )

    def __repr__(self) -> str:
        return f"<Worker waiting={len(self._queue)} running={self._admission.counts.running}>"

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
            if not (self._queue or self._admission.counts.running):
                return
            if self._free_s > now_s or (self._free_s == now_s and not decide_at_now):
                return
            self._decide(self._free_s)

    def _decide(self, now_s: float) -> None:
        """Choose the next step: prefill if anything can be prefilled, else decode."""
        matched = self._queue.matches
        self._plan()
        if self._late:
            self._settle_late()
            if not self._admission.step and not self._batch.size:  # nothing could be overlapped
                if not self._queue:
                    return
                self._plan()
        if not self.config.overlap:  # there the processor looks up while the GPU works
            now_s += (self._queue.matches - matched) * self.config.cost.match_s
        if self._admission.step:
            self._begin_prefill(now_s)
        elif self._batch.size:
            self._begin_decode(now_s)
        else:
            raise AssertionError("a request waits on an empty worker")

    def _plan(self) -> None:
        self._admission.plan()
        for entry, tokens in self._admission.step:
            if entry.lease is None:
                raise AssertionError(f"request {entry.rid!r} is prefilled without having been admitted")
            self._cache.settle(entry.lease, entry.prefilled_tokens + tokens)

    def _settle_late(self) -> None:
        late, self._late = self._late, []
        for change in late:
            change()

    def _begin_prefill(self, now_s: float) -> None:
        parts = [(tokens, entry.prefilled_tokens) for entry, tokens in self._admission.step]
        self._step_end_s = now_s + self.config.cost.prefill_s(parts)
        self._prefill_steps += 1

    def _begin_decode(self, now_s: float) -> None:
        if self._cache.room_tokens < self._batch.size:
            self._admission.retract()
        most = self._cache.room_tokens // self._batch.size
        if most < 1:
            raise AssertionError("KV is too short for a request alone")
        if self._queue and not self._admission.full:
            most = 1  # a pass is due at the next boundary
        self._batch.begin(now_s, most)
        self._step_end_s = self._batch.end_s

    def _complete(self, at_s: float) -> None:
        self._step_end_s = None
        self._free_s = at_s
        if self._admission.step:
            self._complete_prefill(at_s)
        else:
            self._complete_decode(at_s)
        if not self.config.overlap:
            self._settle_late()
        self._drop_aborted()
        if not (self._queue or self._admission.counts.running):
            self._admission.share.reset()

    def _complete_decode(self, at_s: float) -> None:
        self._cache.take(self._batch.size * self._batch.planned_steps)
        self._admission.share.decay(self._batch.planned_steps)
        for entry in self._batch.complete():
            if not entry.aborted and entry.lease is not None:
                entry.lease.private_tokens += self._batch.leave(entry)
                self._finish(entry, entry.input_tokens - 1, at_s)

    def _complete_prefill(self, at_s: float) -> None:
        done, self._admission.step = self._admission.step, []
        if not self._batch.size:
            self._admission.full = False  # SGLang keeps the flag with the batch, and that was empty
        for entry, tokens in done:
            start = entry.prefilled_tokens
            entry.prefilled_tokens += tokens
            if entry.aborted or entry.lease is None:
                continue
            last = entry is not self._admission.chunked
            commit = partial(self._cache.commit, entry.lease, entry.sought, start, entry.prefilled_tokens, last=last)
            if last:
                self._late.append(commit)
                self._complete_prompt(entry, at_s)
            else:
                commit()
                self._admission.full = False

    def _complete_prompt(self, entry: Entry, at_s: float) -> None:
        """Give a request whose prefill has ended its next token."""
        if entry.generated_tokens == 0:
            self._events.append(FirstToken(rid=entry.request.rid, at_s=at_s))
        entry.generated_tokens += 1
        if entry.generated_tokens == entry.request.output_tokens:
            self._finish(entry, entry.input_tokens - 1, at_s)
        else:
            self._batch.join(entry)

    def _finish(self, entry: Entry, since: int, at_s: float) -> None:
        """End a request that has left the batch; `since` is how many tokens it had when it began to decode."""
        request, lease = entry.request, entry.lease
        if lease is None:
            raise AssertionError(f"request {request.rid!r} finished without having run")
        stored = request.prompt_tokens + request.output_tokens - 1
        self._late.append(partial(self._cache.finish, lease, entry.sought, request.reply, since, stored))
        self._late.append(self._admission.left)
        self._finished += 1
        self._output_tokens += request.output_tokens
        del self._live[request.rid]
        self._events.append(Finished(
            rid=request.rid, at_s=at_s, prompt_tokens=request.prompt_tokens,
            cached_tokens=entry.cached_tokens, output_tokens=request.output_tokens,
        ))  # fmt: skip

    def _drop_aborted(self) -> None:
        if self._aborting:
            self._settle_late()
        for entry in self._aborting:
            self._admission.leave(entry)
        self._aborting.clear()

    def _cut(self, now_s: float) -> None:
        self._batch.cut(now_s)
        self._step_end_s = self._batch.end_s
