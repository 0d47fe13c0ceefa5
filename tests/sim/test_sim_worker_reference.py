"""The worker against a reference that takes one step at a time, and its promises under any sequence of calls."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentbatch.sim import POLICIES, Finished, FirstToken, Request, StepCost, Worker, WorkerConfig, WorkerEvent

COST = StepCost(
    decode_base=((1, 0.013), (8, 0.029), (20, 0.041)), context_s=3e-6, prefill_step_s=0.017, prefill_token_s=2e-4,
    attention_s=1e-8,
)
KV, CHUNK, RUNNING = 3000, 256, 5


@dataclass
class Op:
    """Submit a request at `at_s`, or abort one submitted before."""

    at_s: float
    rid: int
    prompt: int = 0  # 0: an abort
    output: int = 1
    limit: int | None = None  # None: fixed length


@dataclass(eq=False)
class Job:
    rid: int
    prompt: int
    output: int
    limit: int | None
    generated: int = 0
    prefilled: int = 0  # of prompt + what it had generated when it was admitted
    to_prefill: int = 0
    aborted: bool = field(default=False)

    @property
    def decoding(self) -> bool:
        return self.prefilled == self.to_prefill

    @property
    def stored(self) -> int:
        return self.prompt + self.generated - 1 if self.decoding else self.prefilled

    @property
    def left(self) -> int:
        most = self.output if self.limit is None else min(self.limit, KV - 2 - self.prompt)
        return most - self.generated


@st.composite
def scripts(draw: st.DrawFn) -> list[Op]:
    ops: list[Op] = []
    now_s = 0.0
    for rid in range(draw(st.integers(1, 14))):
        now_s += draw(st.sampled_from([0.0, 0.0, 0.01, 0.13, 1.7, 40.0]))
        output = draw(st.integers(1, 400) | st.integers(700, 1300))
        limit = draw(st.sampled_from([None, output, 2000]))
        ops.append(Op(now_s, rid, draw(st.integers(1, 1500) | st.integers(1, 300)), output, limit))
        if draw(st.integers(0, 3)) == 0:
            now_s += draw(st.sampled_from([0.0, 0.003, 0.4]))
            ops.append(Op(now_s, draw(st.integers(0, rid))))
    return ops


class Reference:
    """SGLang's loop one step at a time, without a cache: nothing is reused, so only running requests take KV."""

    def __init__(self, ops: list[Op]) -> None:
        self.pending = list(ops)
        self.queue: list[Job] = []
        self.live: list[Job] = []  # in order of admission
        self.batch: list[Job] = []  # those that decode, in order of joining
        self.events: dict[tuple[int, str], float] = {}
        self.full = False
        self.ratio = 0.7
        self.retractions = 0

    def apply(self, before_s: float) -> None:
        while self.pending and self.pending[0].at_s < before_s:
            op = self.pending.pop(0)
            if op.prompt:
                self.queue.append(Job(op.rid, op.prompt, op.output, op.limit))
            self.queue[:] = [job for job in self.queue if op.prompt or job.rid != op.rid]
            for job in self.live:
                job.aborted |= not op.prompt and job.rid == op.rid

    def leave(self, job: Job) -> None:
        self.live.remove(job)
        if job in self.batch:
            self.batch.remove(job)
        self.full = False

    def room(self) -> int:
        return KV - sum(job.stored for job in self.live)

    def run(self) -> dict[tuple[int, str], float]:
        now_s = 0.0
        while True:
            self.apply(math.nextafter(now_s, math.inf))
            for job in [job for job in self.live if job.aborted]:
                self.leave(job)
            if not self.queue and not self.live:
                self.ratio = 0.7
                if not self.pending:
                    return self.events
                now_s = self.pending[0].at_s
                continue
            parts = self.admit()
            now_s = self.prefill(parts, now_s) if parts else self.decode(now_s)

    def admit(self) -> list[tuple[Job, int]]:
        parts = []
        budget = CHUNK
        beside = sum(min(job.left, 4096) * (1 if job.limit is None else self.ratio) for job in self.batch)
        for job in [job for job in self.live if not job.decoding]:
            tokens = min(budget, job.to_prefill - job.prefilled)
            parts.append((job, tokens))
            budget -= tokens
            beside += tokens + 1 + (job.left if job.prefilled + tokens == job.to_prefill else 0)
        if not parts and (self.full or not self.queue):
            return parts
        while self.queue and budget:
            job = self.queue[0]
            if len(self.live) == RUNNING:
                self.full = True
                break
            job.to_prefill, job.prefilled = job.prompt + job.generated, 0
            if job.to_prefill + job.left + 1 >= self.room() - math.ceil(beside):
                self.full = bool(self.live)
                break
            self.live.append(self.queue.pop(0))
            tokens = min(budget, job.to_prefill)
            parts.append((job, tokens))
            budget -= tokens
            beside += tokens + 1 + (job.left if tokens == job.to_prefill else 0)
            if beside >= self.room():
                self.full = True
                break
        return parts

    def prefill(self, parts: list[tuple[Job, int]], now_s: float) -> float:
        now_s += COST.prefill_s([(count, job.prefilled) for job, count in parts])
        self.apply(now_s)
        if not self.batch:
            self.full = False
        for job, count in parts:
            job.prefilled += count
            if not job.decoding:
                self.full = False
            elif not job.aborted:
                self.batch.append(job)
        for job in [job for job, _ in parts if job.decoding and not job.aborted]:
            if job.generated == 0:
                self.events[job.rid, "first"] = now_s
            self.token(job, now_s)
        return now_s

    def decode(self, now_s: float) -> float:
        calm = True
        if self.room() < len(self.batch):
            calm = False
            while self.room() < len(self.batch):
                for job in sorted(self.batch, key=lambda job: (job.generated, -job.prompt), reverse=True)[-1:]:
                    self.leave(job)
                    self.queue.append(job)
                    self.retractions += 1
            most = sum(job.left + job.generated for job in self.batch)
            had = sum(job.generated for job in self.batch)
            self.ratio = min(1.0, (had + 20 * len(self.batch)) / (most + 1))
        now_s += COST.decode_s(len(self.batch), sum(job.prompt + job.generated for job in self.batch))
        if calm:
            self.ratio = max(self.ratio - (0.7 - 0.098) / 600, 0.098)
        self.apply(now_s)
        for job in list(self.batch):
            self.token(job, now_s)
        return now_s

    def token(self, job: Job, now_s: float) -> None:
        job.generated += 1
        if job.generated == job.output:
            self.leave(job)
            if not job.aborted:
                self.events[job.rid, "end"] = now_s


def play(engine: Worker, ops: list[Op], polls_s: Sequence[float] = (), pieces: bool = True) -> list[WorkerEvent]:
    events: list[WorkerEvent] = []
    calls = sorted([(op.at_s, 0, op) for op in ops] + [(at_s, 1, None) for at_s in polls_s], key=lambda c: c[:2])
    for at_s, _, op in calls:
        while engine.next_event_s() < at_s:
            events += engine.advance(engine.next_event_s())
        if op is None:
            engine.statistics()
            events += engine.advance(at_s)
        elif op.prompt:
            engine.submit(
                Request(rid=op.rid, prompt_tokens=op.prompt, output_tokens=op.output, max_new_tokens=op.limit,
                        prompt=((op.rid, op.prompt),) if pieces else (),
                        reply=((f"r{op.rid}", op.output),) if pieces else ()),
                at_s,
            )
        else:
            engine.abort(op.rid, at_s)
    while engine.next_event_s() != math.inf:
        events += engine.advance(engine.next_event_s())
    return events


def new_worker(state_slots: int | None = None, policy: str = "fcfs", overlap: bool = False) -> Worker:
    return Worker(WorkerConfig(cost=COST, kv_tokens=KV, state_slots=state_slots, chunked_prefill_tokens=CHUNK,
                               max_running_requests=RUNNING, schedule_policy=policy, overlap=overlap))


@given(scripts())
def test_stretches_equal_steps_taken_one_by_one(ops: list[Op]) -> None:
    engine = new_worker()
    found = {
        (event.rid, "first" if isinstance(event, FirstToken) else "end"): event.at_s
        for event in play(engine, ops, pieces=False)
    }
    reference = Reference(ops)
    expected = reference.run()
    assert found.keys() == expected.keys()
    for key, at_s in expected.items():
        assert found[key] == pytest.approx(at_s, rel=1e-9)
    assert engine.statistics().retractions == reference.retractions


@given(scripts(), st.lists(st.floats(0, 100), max_size=30), st.booleans())
def test_how_often_it_is_asked_changes_nothing(ops: list[Op], polls_s: list[float], overlap: bool) -> None:
    # not at the instant of a submission: a decision taken there must not miss what comes in the same instant
    polls_s = [at_s for at_s in polls_s if all(at_s != op.at_s for op in ops)]
    asked_seldom, asked_often = (new_worker(9, overlap=overlap) for _ in range(2))
    assert play(asked_seldom, ops) == play(asked_often, ops, polls_s)


@given(scripts(), st.sampled_from(POLICIES), st.booleans())
def test_nothing_leaks(ops: list[Op], policy: str, overlap: bool) -> None:
    engine = new_worker(9, policy, overlap)
    events = play(engine, ops)
    stats = engine.statistics()
    assert (stats.waiting, stats.running, stats.states_held) == (0, 0, 0)
    assert stats.kv_free + stats.kv_evictable == KV
    assert stats.states_cached == stats.states_evictable
    ended = sum(isinstance(event, Finished) for event in events)
    assert ended == stats.finished
    assert ended + stats.aborted == sum(1 for op in ops if op.prompt)
    assert events == sorted(events, key=lambda event: event.at_s)
    assert engine.flush()
    assert engine.statistics().kv_free == KV


@given(scripts(), st.floats(0, 60))
def test_produced_agrees_with_the_events(ops: list[Op], at_s: float) -> None:
    engine = new_worker()
    live = [op for op in ops if op.prompt]
    early = play_until(engine, ops, at_s)
    first = {event.rid for event in early if isinstance(event, FirstToken)}
    for op in live:
        if op.at_s < at_s and op.rid in engine._live:
            produced = engine.produced(op.rid, at_s)
            assert (produced > 0) == (op.rid in first)
            assert produced < op.output


def play_until(engine: Worker, ops: list[Op], at_s: float) -> list[WorkerEvent]:
    events: list[WorkerEvent] = []
    for op in ops:
        if op.prompt and op.at_s < at_s:
            engine.submit(Request(rid=op.rid, prompt_tokens=op.prompt, output_tokens=op.output), op.at_s)
    while engine.next_event_s() <= at_s:
        events += engine.advance(engine.next_event_s())
    engine.advance(at_s)
    return events
