"""The summary of a whole run: by hand, in any order, killed, and empty."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from trace_events import admitted, ended, job, run_started, turn

from agentbatch.events import AttemptFailed, Event, Notice, RunEnded, WorkloadKnown
from agentbatch.trace import NoticeCount, Recorder, read_run, summarize

KEYS = (
    "makespan_s", "lower_bound_s", "tail_5_s", "tail_10_s", "completed", "failed", "cache_reuse", "input_tokens",
    "cached_tokens", "new_prefill_tokens", "output_tokens", "mean_in_flight", "beta", "gamma_out", "ttft_mean_s",
    "tpot_mean_s", "admission_wait_s", "environment_wait_s", "environment_share", "wall_s",
)  # fmt: skip
EXTRA_KEYS = (
    "cancelled", "unfinished", "turns", "jobs", "retries", "timeouts", "timed_out_trajectories", "overruns",
    "inference_in_environment", "output_tokens_per_s", "loop_lag_mean_s", "loop_lag_worst_s", "priority_s",
    "bottleneck", "bottleneck_sentence", "time_shares",
    "slot_gain", "notices", "torn_tail",
)  # fmt: skip


def tokens(prompt: int, cached: int, output: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "cached_tokens": cached, "output_tokens": output}


def a_run() -> list[Event]:
    """Two trajectories on two workers and one environment slot; a third fails."""
    streamed = {"streamed": True}
    return [
        run_started(ce={"default": 1}, workers=("w0", "w1")),
        WorkloadKnown(
            source="s", trajectories=3, environment_s={"default": 7.0}, engine_s=10.0, longest_chain_s=9.0, workers=2
        ),
        admitted("a", 0.0, 0.0),
        admitted("b", 0.0, 0.0),
        turn("a", 1, 0.0, 4.0, "w0", first_byte_s=1.0, **streamed, **tokens(100, 0, 4)),
        turn("b", 1, 0.0, 2.0, "w1", first_byte_s=0.5, **streamed, **tokens(100, 50, 1)),
        job("b", 2.0, 2.0, 6.0),
        job("a", 4.0, 6.0, 9.0, operations=2),
        job("a", 9.0, None, 9.5, outcome="cancelled"),
        turn("b", 2, 6.0, 10.0, "w1", **tokens(200, 100, 3), attempts=3, in_environment=True),
        AttemptFailed(at_s=7.0, label="r-b", turn=2, attempt=1, error="x", retry_in_s=1.0),
        turn("a", 2, 9.0, 10.0, "w1", **tokens(100, 50, 2)),
        ended("a", 10.0),
        ended("b", 10.0),
        admitted("c", 10.0, 0.0),
        turn("c", 1, 10.0, 20.0, "", outcome="failed", error="APITimeoutError: Request timed out.", timed_out=True),
        ended("c", 20.0, "failed", admitted_s=10.0, error="APITimeoutError: Request timed out."),
        ended("d", 20.0, "cancelled", admitted_s=None),
        Notice(at_s=1.0, kind="transport", message="slow"),
        Notice(at_s=2.0, kind="overrun", message="late", label="r-a"),
        Notice(at_s=3.0, kind="overrun", message="late", label="r-b"),
        RunEnded(at_s=20.5, wall_s=0.5, outcome="ok", priority_s=0.01, loop_lag_mean_s=0.002, loop_lag_worst_s=0.3),
    ]


def test_every_figure_by_hand() -> None:
    figures = summarize(a_run()).to_dict()
    assert tuple(figures) == KEYS + EXTRA_KEYS
    assert json.loads(json.dumps(figures)) == {
        "makespan_s": 20.0,
        "lower_bound_s": 9.0,
        "tail_5_s": 0.0,
        "tail_10_s": 0.0,
        "completed": 2,
        "failed": 1,
        "cache_reuse": 0.4,
        "input_tokens": 500,
        "cached_tokens": 200,
        "new_prefill_tokens": 300,
        "output_tokens": 10,
        "mean_in_flight": round((4 + 2 + 4 + 1 + 10) / 20, 6),
        "beta": round((2 * 0 + 1 * 1) / 3, 6),  # [0, 2] one each; [9, 10] both on w1
        "gamma_out": round((6 - 4) / 10, 6),
        "ttft_mean_s": 0.75,
        "tpot_mean_s": 1.0,  # (4 - 1) / (4 - 1); one token has no interval
        "admission_wait_s": round(10 / 3, 6),
        "environment_wait_s": 1.0,
        "environment_share": round(7 / (7 + 21), 6),
        "wall_s": 0.5,
        "cancelled": 1,
        "unfinished": 0,
        "turns": 4,
        "jobs": 2,
        "retries": 2,
        "timeouts": 1,
        "timed_out_trajectories": 1,
        "overruns": 0,
        "inference_in_environment": 1,
        "output_tokens_per_s": 0.5,
        "loop_lag_mean_s": 0.002,
        "loop_lag_worst_s": 0.3,
        "priority_s": 0.01,
        "bottleneck": "cs",  # c waits for admission for half of the time, and hardly anybody for an environment slot
        "bottleneck_sentence": "CS binds: others wait for admission, and 70 % of active time is inference; "
        "one more slot is worth up to +11 % throughput",
        "time_shares": {  # a: 5 + 3 + 2 waiting; b: 6 + 4; c: 10
            "inference": 0.7, "environment": round(7 / 30, 6), "harness": 0.0, "waiting:default": round(2 / 30, 6),
        },
        "slot_gain": {"cs": round(1 / (0.5 + 0.5 / 1.25) - 1, 6), "ce:default": round(2 / 28, 6)},
        "notices": [
            {"kind": "transport", "message": "slow", "count": 1},
            {"kind": "overrun", "message": "late", "count": 2},
        ],
        "torn_tail": False,
    }


def test_events_are_joined_by_label_and_turn_never_by_position() -> None:
    """Case 31, DeepSpec#29: results written out of order were matched with the wrong requests."""
    expected = summarize(a_run())
    for seed in range(50):
        events = a_run()
        random.Random(seed).shuffle(events)
        assert summarize(events) == expected


def test_a_file_sums_up_like_its_events(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with Recorder(path) as recorder:
        for event in a_run():
            recorder.write(event)
    assert summarize(read_run(path)) == summarize(a_run())


def test_a_doubled_event_counts_once_and_is_told() -> None:
    events = a_run()
    doubled = summarize([*events, events[4], events[12]])
    assert doubled.notices[-1] == NoticeCount(
        kind="duplicates", message="2 events came twice and are counted once", count=2
    )
    rest = doubled.to_dict() | {"notices": None}
    assert rest == summarize(events).to_dict() | {"notices": None}


def test_a_killed_run_sums_up_and_says_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with Recorder(path) as recorder:
        for event in a_run()[:13]:  # a has ended, b has not, c was never admitted
            recorder.write(event)
    path.write_bytes(path.read_bytes()[:-10])  # and the end of a was torn
    figures = summarize(read_run(path))
    assert (figures.completed, figures.unfinished, figures.torn_tail) == (0, 3, True)
    assert figures.makespan_s == 10.0, "until the last event"
    assert figures.tail_5_s is figures.tail_10_s is figures.wall_s is None
    assert figures.mean_in_flight == pytest.approx(1.1)
    assert figures.lower_bound_s == 9.0
    kinds = {notice.kind: notice for notice in figures.notices}
    assert list(kinds) == ["unfinished", "not-closed", "torn"]
    assert kinds["unfinished"].message.startswith("3 of 3 trajectories never ended")
    assert "line 13, the last, is not valid JSON" in kinds["torn"].message


def test_a_run_without_a_known_workload_counts_what_was_admitted() -> None:
    figures = summarize([event for event in a_run()[:13] if not isinstance(event, WorkloadKnown)])
    assert (figures.completed, figures.unfinished) == (1, 1)
    assert figures.lower_bound_s == 10.0  # b: turn 2 s, job 4 s, turn 4 s; a: 4 + 3 + 1; environment 7 s on one slot


@pytest.mark.parametrize("events", [[], [run_started()], [run_started(), RunEnded(at_s=0.0, wall_s=0.1, outcome="ok")]])
def test_an_empty_run_has_nothing_but_zeros_and_nulls(events: list[Event]) -> None:
    figures = summarize(events).to_dict()
    assert json.loads(json.dumps(figures, allow_nan=False)) == figures
    assert figures["makespan_s"] is figures["beta"] is figures["environment_share"] is None
    assert all(figures[key] in (0, None, False, 0.1) for key in figures if key != "notices")


def test_a_run_that_took_no_time_divides_nothing_by_zero() -> None:
    one = turn("a", 1, 0.0, 0.0, "w0", streamed=True, first_byte_s=0.0, output_tokens=1)
    figures = summarize([run_started(), admitted("a"), one, ended("a", 0.0)])
    assert figures.makespan_s == 0.0
    assert figures.mean_in_flight is figures.output_tokens_per_s is figures.tpot_mean_s is None
    assert figures.ttft_mean_s == 0.0


def test_one_worker_has_no_balance() -> None:
    turns = [turn("a", n, 0.0, 1.0, "w0", output_tokens=1) for n in range(3)]
    one: list[Any] = [run_started(workers=("w0",)), admitted("a"), *turns, ended("a", 1.0)]
    assert summarize(one).beta is summarize(one).gamma_out is None
    two: list[Any] = [run_started(workers=("w0", "w1")), *one[1:]]
    assert (summarize(two).beta, summarize(two).gamma_out) == (1.0, 1.0)


def test_turns_that_tell_no_tokens_or_no_worker_are_noticed() -> None:
    turns = [turn("a", n, 0.0, 1.0, f"w{n}" if n < 2 else "", output_tokens=None) for n in range(3)]
    figures = summarize([run_started(workers=("w0", "w1")), admitted("a"), *turns, ended("a", 1.0)])
    kinds = {notice.kind: notice.count for notice in figures.notices}
    assert (kinds["usage"], kinds["workers"]) == (3, 1)
    assert figures.input_tokens is figures.output_tokens is figures.cache_reuse is None
