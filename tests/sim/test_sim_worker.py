"""One worker, scenario by scenario; every time is worked out by hand from round step costs."""

import math
from collections.abc import Sequence

import pytest

from agentbatch.errors import UsageError
from agentbatch.sim import Finished, FirstToken, Request, StepCost, Worker, WorkerConfig, WorkerEvent
from agentbatch.sim.radix import Piece

# Decode: 1 s per step whatever the batch. Prefill: 0.01 s per token.
FLAT = StepCost(decode_base=((1, 1.0),), context_s=0.0, prefill_step_s=0.0, prefill_token_s=0.01, attention_s=0.0)


def worker(**change: object) -> Worker:
    settings: dict[str, object] = {"cost": FLAT, "kv_tokens": 10_000, "chunked_prefill_tokens": 100, **change}
    return Worker(WorkerConfig(**settings))  # type: ignore[arg-type]


def ask(rid: str, prompt: int, output: int, pieces: Sequence[Piece] = (), reply: Sequence[Piece] = ()) -> Request:
    return Request(rid=rid, prompt_tokens=prompt, output_tokens=output, prompt=pieces or ((rid, prompt),),
                   reply=reply or ((f"{rid}'s", output),))


def run(engine: Worker, until_s: float = math.inf) -> list[WorkerEvent]:
    events = []
    while (due_s := engine.next_event_s()) <= until_s and due_s != math.inf:
        events += engine.advance(due_s)
    return events


def times(events: list[WorkerEvent]) -> dict[str, tuple[float, float]]:
    first = {event.rid: event.at_s for event in events if isinstance(event, FirstToken)}
    return {event.rid: (first[event.rid], event.at_s) for event in events if isinstance(event, Finished)}


def test_one_request_alone() -> None:
    engine = worker()
    engine.submit(ask("a", 50, 4), 10.0)
    assert engine.next_event_s() == 10.0  # a decision is due
    events = run(engine)
    assert events == [
        FirstToken(rid="a", at_s=10.5),
        Finished(rid="a", at_s=13.5, prompt_tokens=50, cached_tokens=0, output_tokens=4),
    ]
    assert engine.next_event_s() == math.inf


def test_a_single_token_comes_out_of_the_prefill() -> None:
    engine = worker()
    engine.submit(ask("a", 50, 1), 0.0)
    assert times(run(engine)) == {"a": (0.5, 0.5)}


def test_requests_of_the_same_instant_share_a_prefill_step() -> None:
    engine = worker()
    engine.submit(ask("a", 30, 2), 0.0)
    engine.submit(ask("b", 40, 2), 0.0)
    assert times(run(engine)) == {"a": (0.7, 1.7), "b": (0.7, 1.7)}


def test_a_long_prompt_is_prefilled_in_chunks_and_the_next_one_fills_the_last() -> None:
    engine = worker()
    engine.submit(ask("long", 250, 2), 0.0)
    engine.submit(ask("short", 30, 2), 0.0)
    # steps of 100, 100 and 50 + 30 tokens; then both decode one step
    assert times(run(engine)) == {"long": (2.8, 3.8), "short": (2.8, 3.8)}
    assert engine.statistics().prefill_steps == 3


def test_decode_waits_while_anything_can_be_prefilled() -> None:
    engine = worker()
    engine.submit(ask("a", 100, 3), 0.0)
    engine.advance(0.0)
    engine.submit(ask("b", 250, 1), 0.5)
    # a's prefill ends at 1.0; b's chunks run to 3.5 while a waits; then a decodes two steps
    assert times(run(engine)) == {"b": (3.5, 3.5), "a": (1.0, 5.5)}


def test_an_arrival_ends_the_stretch_at_its_next_step() -> None:
    engine = worker()
    engine.submit(ask("a", 100, 11), 0.0)
    engine.advance(0.0)
    events = run(engine, 1.0)
    engine.submit(ask("b", 50, 2), 4.25)
    # steps end at 2, 3, 4 and 5; b's prefill runs to 5.5; both step to 6.5; a has six more
    assert times(events + run(engine)) == {"b": (5.5, 6.5), "a": (1.0, 11.5)}


def test_an_arrival_on_a_step_boundary_is_prefilled_there() -> None:
    engine = worker()
    engine.submit(ask("a", 100, 11), 0.0)
    engine.advance(0.0)
    engine.submit(ask("b", 50, 1), 4.0)
    assert times(run(engine))["b"] == (4.5, 4.5)


def test_first_come_first_served_lets_a_big_head_block_the_rest() -> None:
    engine = worker(kv_tokens=1000, chunked_prefill_tokens=1000)
    engine.submit(ask("running", 500, 11), 0.0)
    engine.advance(0.0)
    engine.submit(ask("big", 600, 1), 1.0)
    engine.submit(ask("small", 10, 1), 1.5)
    done = times(run(engine))
    assert done["running"] == (5.0, 15.0)
    assert done["big"] == done["small"] == (21.1, 21.1)  # one prefill step of 610 tokens


def test_the_running_limit_holds() -> None:
    engine = worker(max_running_requests=2)
    for rid in "abc":
        engine.submit(ask(rid, 10, 3), 0.0)
    done = times(run(engine))
    assert done == {"a": (0.2, 2.2), "b": (0.2, 2.2), "c": (pytest.approx(2.3), pytest.approx(4.3))}
    assert engine.statistics().peak_running == 2


def test_state_slots_bound_the_running_requests() -> None:
    engine = worker(state_slots=7, slots_per_request=3)
    for rid in "abc":
        engine.submit(ask(rid, 10, 3), 0.0)
    engine.advance(0.0)
    stats = engine.statistics()
    assert (stats.running, stats.waiting, stats.states_held) == (2, 1, 2)  # no_buffer: one each
    run(engine)
    assert engine.statistics().peak_running == 2


def test_the_next_turn_reuses_prompt_and_reply() -> None:
    engine = worker(state_slots=30)
    engine.submit(ask("t1", 640, 64, [("p", 640)], [("r", 64)]), 0.0)
    run(engine)
    engine.submit(ask("t2", 803, 1, [("p", 640), ("r", 64), ("tool", 99)]), 100.0)
    events = run(engine)  # the last token of a reply has not been computed
    assert events[-1] == Finished(rid="t2", at_s=101.0, prompt_tokens=803, cached_tokens=703, output_tokens=1)
    stats = engine.statistics()
    assert (stats.input_tokens, stats.hit_tokens) == (640 + 803, 703)


def test_cached_prefixes_give_way_to_new_requests() -> None:
    engine = worker(kv_tokens=1000, chunked_prefill_tokens=1000)
    for rid, at_s in (("a", 0.0), ("b", 100.0), ("c", 200.0)):
        engine.submit(ask(rid, 400, 1), at_s)
        run(engine)
    stats = engine.statistics()
    assert stats.evicted_tokens == 400  # a's prompt
    assert stats.kv_free + stats.kv_evictable == 1000


def test_produced_counts_tokens_as_they_come() -> None:
    engine = worker()
    engine.submit(ask("a", 100, 4), 0.0)
    engine.advance(0.0)
    assert engine.produced("a", 0.5) == 0
    run(engine, 1.0)
    assert [engine.produced("a", now_s) for now_s in (1.0, 1.99, 2.0, 3.5)] == [1, 1, 2, 3]
    engine.submit(ask("b", 1, 1), 5.0)  # runs past a's end: its event waits to be fetched
    assert engine.produced("a", 5.0) == 4
    engine.advance(5.0)
    with pytest.raises(UsageError, match="not live"):
        engine.produced("a", 5.0)


def test_a_waiting_request_is_withdrawn_at_once_and_a_full_batch_stays_full() -> None:
    engine = worker(kv_tokens=1000, chunked_prefill_tokens=1000)
    engine.submit(ask("running", 500, 11), 0.0)
    engine.advance(0.0)
    engine.submit(ask("big", 600, 1), 6.5)
    engine.submit(ask("small", 10, 1), 6.5)
    assert engine.abort("big", 7.5)
    assert engine.statistics().waiting == 1
    assert times(run(engine))["small"] == (15.1, 15.1)  # nothing is tried again before a request leaves


def test_a_running_request_is_withdrawn_at_the_next_step() -> None:
    engine = worker()
    engine.submit(ask("a", 100, 50), 0.0)
    engine.submit(ask("b", 100, 50), 0.0)
    engine.advance(0.0)
    run(engine, 2.0)
    assert engine.abort("a", 5.25)
    engine.advance(5.9)
    assert engine.statistics().running == 2
    engine.advance(6.0)
    stats = engine.statistics()
    assert (stats.running, stats.aborted) == (1, 1)
    assert [event.rid for event in run(engine)] == ["b"]


def test_an_abort_in_the_middle_of_a_chunked_prefill_frees_everything() -> None:
    engine = worker(state_slots=6)
    engine.submit(ask("a", 500, 5), 0.0)
    engine.advance(1.5)
    assert engine.abort("a", 1.5)
    run(engine)
    stats = engine.statistics()
    assert (stats.kv_free, stats.states_held, stats.running) == (10_000, 0, 0)
    assert engine.flush()


def test_an_abort_too_late_is_no_abort() -> None:
    engine = worker()
    engine.submit(ask("a", 50, 2), 0.0)
    engine.advance(0.0)
    assert not engine.abort("a", 1.5)
    assert times(engine.advance(1.5)) == {"a": (0.5, 1.5)}
    assert not engine.abort("never", 2.0)


def test_a_name_can_be_used_again_after_its_request_ended() -> None:
    engine = worker()
    engine.submit(ask("a", 50, 2), 0.0)
    engine.advance(0.0)
    with pytest.raises(UsageError, match="live already"):
        engine.submit(ask("a", 50, 2), 1.0)
    engine.submit(ask("a", 50, 2), 2.0)
    assert [event.rid for event in run(engine) if isinstance(event, Finished)] == ["a", "a"]


def test_flush_is_refused_while_anything_is_inside() -> None:
    engine = worker()
    engine.submit(ask("a", 50, 2), 0.0)
    assert not engine.flush()
    run(engine)
    assert engine.statistics().kv_evictable == 52
    assert engine.flush()
    assert engine.statistics().kv_free == 10_000


def test_a_request_that_can_never_fit_is_refused_with_the_figures() -> None:
    with pytest.raises(UsageError, match=r"10001 tokens \(10000 prompt \+ 1 output\).*holds 10000"):
        worker().submit(ask("a", 10_000, 1), 0.0)


def test_time_runs_forward_only() -> None:
    engine = worker()
    engine.advance(5.0)
    with pytest.raises(UsageError, match="forward"):
        engine.advance(4.0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kv_tokens": 3}, "kv_tokens must be at least 4"),
        ({"state_slots": 2}, "slots_per_request = 3"),
        ({"max_running_requests": 0}, "max_running_requests"),
        ({"chunked_prefill_tokens": 0}, "chunked_prefill_tokens"),
        ({"max_states_per_path": 0}, "max_states_per_path"),
        ({"schedule_policy": "hrrn"}, "known: fcfs, lpm, dfs-weight, routing-prefix"),
        ({"label_capacity": 0}, "choose that"), ({"state_mode": "lazy"}, "known: no_buffer"),
        ({"state_slots": 30, "state_mode": "extra_buffer"}, "holds 3 slots and locks another"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(change: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        worker(**change)


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt_tokens": 0, "output_tokens": 1}, {"prompt_tokens": 1, "output_tokens": 0},
        {"prompt_tokens": 5, "output_tokens": 1, "prompt": [("p", 6)]},
        {"prompt_tokens": 5, "output_tokens": 1, "prompt": [("p", 5)], "reply": [("r", 2)]},
    ],
)
def test_a_request_that_contradicts_itself_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        Request(rid="x", **fields)  # type: ignore[arg-type]
