"""The worker against a reference that takes one step at a time, and its promises under any sequence of calls."""

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentbatch.sim import Finished, FirstToken, Request, StepCost, Worker, WorkerConfig, WorkerEvent

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


@dataclass
class Job:
    rid: int
    prompt: int
    output: int
    prefilled: int = 0
    tokens: int = 0
    aborted: bool = field(default=False)


@st.composite
def scripts(draw: st.DrawFn) -> list[Op]:
    ops: list[Op] = []
    now_s = 0.0
    for rid in range(draw(st.integers(1, 14))):
        now_s += draw(st.sampled_from([0.0, 0.0, 0.01, 0.13, 1.7, 40.0]))
        ops.append(Op(now_s, rid, draw(st.integers(1, 1500)), draw(st.integers(1, 120))))
        if draw(st.integers(0, 3)) == 0:
            now_s += draw(st.sampled_from([0.0, 0.003, 0.4]))
            ops.append(Op(now_s, draw(st.integers(0, rid))))
    return ops


def step_by_step(ops: list[Op]) -> dict[tuple[int, str], float]:
    """Prompts are all different, so cached prefixes always give way and only the running requests take KV."""
    queue: list[Job] = []
    live: list[Job] = []  # admitted, in order of admission
    events: dict[tuple[int, str], float] = {}
    pending = list(ops)
    now_s = 0.0

    def apply(before_s: float) -> None:
        while pending and pending[0].at_s < before_s:
            op = pending.pop(0)
            if op.prompt:
                queue.append(Job(op.rid, op.prompt, op.output))
            queue[:] = [job for job in queue if op.prompt or job.rid != op.rid]
            for job in live:
                job.aborted |= not op.prompt and job.rid == op.rid

    while True:
        apply(math.nextafter(now_s, math.inf))
        live = [job for job in live if not job.aborted]
        if not queue and not live:
            if not pending:
                return events
            now_s = pending[0].at_s
            continue
        budget, parts = CHUNK, []
        for job in [job for job in live if job.prefilled < job.prompt]:
            parts.append((job, min(budget, job.prompt - job.prefilled)))
            budget -= parts[-1][1]
        while queue and budget and len(live) < RUNNING:
            need = queue[0].prompt + queue[0].output
            if need + sum(job.prompt + job.output for job in live) > KV:
                break
            job = queue.pop(0)
            live.append(job)
            parts.append((job, min(budget, job.prompt)))
            budget -= parts[-1][1]
        decoding = [job for job in live if job.prefilled == job.prompt]
        if parts:
            now_s += COST.prefill_s([(count, job.prefilled) for job, count in parts])
        else:
            now_s += COST.decode_s(len(decoding), sum(job.prompt + job.tokens for job in decoding))
        apply(now_s)
        for job, count in parts:
            job.prefilled += count
        for job in [job for job, _ in parts if job.prefilled == job.prompt] if parts else decoding:
            if job.aborted:
                continue
            job.tokens += 1
            if job.tokens == 1:
                events[job.rid, "first"] = now_s
            if job.tokens == job.output:
                events[job.rid, "end"] = now_s
                live.remove(job)


def play(engine: Worker, ops: list[Op], polls_s: list[float] = []) -> list[WorkerEvent]:  # noqa: B006
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
                Request(rid=op.rid, prompt_tokens=op.prompt, output_tokens=op.output,
                        prompt=((op.rid, op.prompt),), reply=((f"r{op.rid}", op.output),)),
                at_s,
            )
        else:
            engine.abort(op.rid, at_s)
    while engine.next_event_s() != math.inf:
        events += engine.advance(engine.next_event_s())
    return events


def new_worker(state_slots: int | None = None) -> Worker:
    return Worker(WorkerConfig(cost=COST, kv_tokens=KV, state_slots=state_slots, chunked_prefill_tokens=CHUNK,
                               max_running_requests=RUNNING))


@given(scripts())
def test_stretches_equal_steps_taken_one_by_one(ops: list[Op]) -> None:
    found = {
        (event.rid, "first" if isinstance(event, FirstToken) else "end"): event.at_s
        for event in play(new_worker(), ops)
    }
    expected = step_by_step(ops)
    assert found.keys() == expected.keys()
    for key, at_s in expected.items():
        assert found[key] == pytest.approx(at_s, rel=1e-9)


@given(scripts(), st.lists(st.floats(0, 100), max_size=30))
def test_how_often_it_is_asked_changes_nothing(ops: list[Op], polls_s: list[float]) -> None:
    # not at the instant of a submission: a decision taken there must not miss what comes in the same instant
    polls_s = [at_s for at_s in polls_s if all(at_s != op.at_s for op in ops)]
    assert play(new_worker(9), ops) == play(new_worker(9), ops, polls_s)


@given(scripts())
def test_nothing_leaks(ops: list[Op]) -> None:
    engine = new_worker(9)
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
