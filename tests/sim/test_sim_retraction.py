"""KV that runs out while requests decode, and what overlap delays; times by hand from round step costs."""

import math

from agentbatch.sim import Finished, FirstToken, Request, StepCost, Worker, WorkerConfig, WorkerEvent

FLAT = StepCost(decode_base=((1, 1.0),), context_s=0.0, prefill_step_s=0.0, prefill_token_s=0.01, attention_s=0.0)


def worker(**change: object) -> Worker:
    settings: dict[str, object] = {"cost": FLAT, "kv_tokens": 1000, "chunked_prefill_tokens": 1000, **change}
    return Worker(WorkerConfig(**settings))  # type: ignore[arg-type]


def run(engine: Worker) -> list[WorkerEvent]:
    events = []
    while (due_s := engine.next_event_s()) != math.inf:
        events += engine.advance(due_s)
    return events


def ends(events: list[WorkerEvent]) -> dict[object, Finished]:
    return {event.rid: event for event in events if isinstance(event, Finished)}


def ask(rid: str, prompt: int, output: int, limit: int | None = None) -> Request:
    return Request(rid=rid, prompt_tokens=prompt, output_tokens=output, max_new_tokens=limit,
                   prompt=((rid, prompt),), reply=((f"{rid}'s", output),))


def test_fixed_lengths_leave_room_for_their_whole_output() -> None:
    engine = worker()
    engine.submit(ask("a", 300, 400), 0.0)
    engine.submit(ask("b", 100, 250), 0.0)
    done = ends(run(engine))
    assert engine.statistics().retractions == 0
    assert done["b"].at_s > done["a"].at_s  # 400 and 350 do not fit together with 300: b waits


def test_open_lengths_are_overcommitted_and_the_one_with_least_output_is_put_back() -> None:
    engine = worker()
    engine.submit(ask("a", 300, 400, limit=400), 0.0)
    events = engine.advance(0.0)
    engine.submit(ask("b", 100, 300, limit=300), 50.0)
    events += run(engine)
    done = ends(events)
    stats = engine.statistics()
    assert stats.retractions == 1
    assert stats.admitted == stats.finished == 2
    assert (stats.input_tokens, stats.output_tokens) == (400, 700)
    assert [event.rid for event in events if isinstance(event, FirstToken)] == ["a", "b"]  # once each
    # a decodes alone but for 50 steps before b, 1 s of b's prefill, and 399 steps of its own
    assert done["a"].at_s == 3.0 + 1.0 + 399
    assert done["b"].at_s > done["a"].at_s


def test_a_retracted_request_resumes_with_what_it_had() -> None:
    engine = worker()
    engine.submit(ask("a", 300, 400, limit=400), 0.0)
    engine.advance(0.0)
    engine.submit(ask("b", 100, 300, limit=300), 50.0)
    had = 0
    while (due_s := engine.next_event_s()) != math.inf and not engine.statistics().retractions:
        engine.advance(due_s)
    had = engine.produced("b", due_s)
    assert 0 < had < 300
    assert engine.statistics().waiting == 1
    # 300 + 100 + what both generated is the whole pool
    assert 300 + 100 + engine.produced("a", due_s) + had - 2 >= 998
    events = ends(run(engine))
    assert events["b"].output_tokens == 300
    assert events["b"].cached_tokens == 0  # that of its first admission


def test_a_request_alone_is_never_put_back() -> None:
    engine = worker()
    engine.submit(ask("a", 300, 698, limit=698), 0.0)
    assert ends(run(engine))["a"].at_s == 3.0 + 697
    assert engine.statistics().retractions == 0


def test_with_overlap_a_place_is_free_one_step_later() -> None:
    def second_starts(overlap: bool) -> float:
        engine = worker(max_running_requests=1, overlap=overlap, kv_tokens=10_000)
        engine.submit(ask("a", 100, 3), 0.0)
        engine.submit(ask("c", 100, 1), 0.0)
        return next(event.at_s for event in run(engine) if event.rid == "c")

    assert second_starts(overlap=False) == second_starts(overlap=True) == 4.0  # nothing else runs: no step to wait for

    def third_starts(overlap: bool) -> float:
        engine = worker(max_running_requests=2, overlap=overlap, kv_tokens=10_000)
        engine.submit(ask("a", 50, 3), 0.0)
        engine.submit(ask("b", 50, 30), 0.0)
        engine.submit(ask("c", 100, 1), 0.0)
        return next(event.at_s for event in run(engine) if event.rid == "c")

    assert (third_starts(overlap=False), third_starts(overlap=True)) == (4.0, 5.0)


def test_with_overlap_the_next_prefill_does_not_see_the_last_ones_text() -> None:
    def hit(overlap: bool) -> int:
        engine = worker(overlap=overlap, kv_tokens=10_000)
        engine.submit(ask("a", 500, 5), 0.0)
        engine.advance(0.0)
        engine.submit(Request(rid="b", prompt_tokens=600, output_tokens=1, prompt=(("a", 500), ("more", 100))), 1.0)
        return ends(run(engine))["b"].cached_tokens

    assert (hit(overlap=False), hit(overlap=True)) == (500, 0)
