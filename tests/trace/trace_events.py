"""Events for the tests of this folder: short builders, and a Hypothesis strategy for each kind."""

from typing import Any

from hypothesis import strategies as st

from agentbatch.events import (
    Admitted,
    AttemptFailed,
    ChildStarted,
    Event,
    JobEnded,
    LimitsChanged,
    Notice,
    RunEnded,
    RunStarted,
    TrajectoryEnded,
    TurnEnded,
    WorkerChanged,
    WorkloadKnown,
)


def run_started(**fields: Any) -> RunStarted:
    defaults = {"run": "r", "version": "0.1.0", "started_unix_s": 1.0, "cs": 4, "ce": {"default": 2}}
    return RunStarted(**{**defaults, **fields})


def admitted(key: str, at_s: float = 0.0, submitted_s: float = 0.0) -> Admitted:
    return Admitted(at_s=at_s, submitted_s=submitted_s, key=key, label=f"r-{key}")


def ended(key: str, at_s: float, outcome: Any = "ok", **fields: Any) -> TrajectoryEnded:
    defaults = {"admitted_s": 0.0, "turns": 1}
    return TrajectoryEnded(at_s=at_s, key=key, label=f"r-{key}", outcome=outcome, **{**defaults, **fields})


def turn(key: str, number: int, started_s: float, ended_s: float, worker: str = "", **fields: Any) -> TurnEnded:
    defaults = {"first_byte_s": None, "outcome": "ok", "endpoint": "chat", "streamed": False, "attempts": 1}
    span = {"started_s": started_s, "ended_s": ended_s}
    return TurnEnded(label=f"r-{key}", turn=number, worker=worker, **span, **{**defaults, **fields})


def job(key: str, asked_s: float, granted_s: float | None, ended_s: float, **fields: Any) -> JobEnded:
    defaults = {"resource": "default", "turns": 1, "outcome": "ok"}
    span = {"asked_s": asked_s, "granted_s": granted_s, "ended_s": ended_s}
    return JobEnded(label=f"r-{key}", **span, **{**defaults, **fields})


SECONDS = st.integers(-(10**12), 10**12).map(lambda microseconds: round(microseconds / 1e6, 6))
TEXTS = st.text(max_size=12)
COUNTS = st.integers(0, 10**9)
OUTCOMES = st.sampled_from(["ok", "failed", "cancelled", "overrun"])
MAYBE_TEXT = st.none() | TEXTS
MAYBE_COUNT = st.none() | COUNTS
MAYBE_SECONDS = st.none() | SECONDS

OTHER_EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(
        WorkloadKnown, source=TEXTS, trajectories=COUNTS, environment_s=st.dictionaries(TEXTS, SECONDS, max_size=3),
        engine_s=MAYBE_SECONDS, longest_chain_s=SECONDS, workers=COUNTS,
    ),
    st.builds(Admitted, at_s=SECONDS, submitted_s=SECONDS, key=TEXTS, label=TEXTS),
    st.builds(ChildStarted, at_s=SECONDS, label=TEXTS, parent=TEXTS),
    st.builds(LimitsChanged, at_s=SECONDS, cs=COUNTS, ce=st.dictionaries(TEXTS, COUNTS, max_size=3)),
    st.builds(
        AttemptFailed, at_s=SECONDS, label=TEXTS, turn=COUNTS, attempt=COUNTS, error=TEXTS, status=MAYBE_COUNT,
        retry_in_s=MAYBE_SECONDS,
    ),
    st.builds(
        TurnEnded, label=TEXTS, turn=COUNTS, started_s=SECONDS, first_byte_s=MAYBE_SECONDS, ended_s=SECONDS,
        outcome=OUTCOMES, endpoint=TEXTS, streamed=st.booleans(), attempts=COUNTS, worker=TEXTS,
        prompt_tokens=MAYBE_COUNT, cached_tokens=MAYBE_COUNT, output_tokens=MAYBE_COUNT, in_environment=st.booleans(),
        error=MAYBE_TEXT, timed_out=st.booleans(),
    ),
    st.builds(
        JobEnded, label=TEXTS, resource=TEXTS, turns=COUNTS, asked_s=SECONDS, granted_s=MAYBE_SECONDS, ended_s=SECONDS,
        outcome=OUTCOMES, operations=COUNTS, error=MAYBE_TEXT, timed_out=st.booleans(),
    ),
    st.builds(
        TrajectoryEnded, at_s=SECONDS, key=TEXTS, label=TEXTS, admitted_s=MAYBE_SECONDS, outcome=OUTCOMES, turns=COUNTS,
        error=MAYBE_TEXT, timed_out=st.booleans(),
    ),
    st.builds(
        Notice, at_s=SECONDS, kind=TEXTS, message=TEXTS, label=MAYBE_TEXT,
        details=st.dictionaries(TEXTS, TEXTS | COUNTS | SECONDS, max_size=3),
    ),
    st.builds(WorkerChanged, at_s=SECONDS, worker=TEXTS, live=st.booleans(), reason=TEXTS),
    st.builds(RunEnded, at_s=SECONDS, wall_s=SECONDS, outcome=OUTCOMES, priority_s=MAYBE_SECONDS),
)  # fmt: skip

RUN_STARTED: st.SearchStrategy[Event] = st.builds(
    RunStarted, run=TEXTS, version=TEXTS, started_unix_s=SECONDS, cs=COUNTS,
    ce=st.dictionaries(TEXTS, COUNTS, max_size=3), unified=st.booleans(), env_policy=TEXTS,
    band_s=SECONDS | st.just("auto") | st.none(), bucket_s=SECONDS, admission=TEXTS, speedup=SECONDS,
    workers=st.lists(TEXTS, max_size=3).map(tuple), routing=TEXTS, alpha=SECONDS,
    schema=st.just(1),
)  # fmt: skip

RUNS = st.builds(lambda first, rest: [first, *rest], RUN_STARTED, st.lists(OTHER_EVENTS, max_size=8))
