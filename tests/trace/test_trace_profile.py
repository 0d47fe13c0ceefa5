"""How long tasks took before: read from runs and traces, blurred."""

import json
import math
import statistics
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentbatch.errors import TraceError, UsageError
from agentbatch.events import Admitted, ChildStarted, Event, JobEnded, RunStarted, TrajectoryEnded, TurnEnded
from agentbatch.trace.profile import OUTPUT_TOKEN_S, noisy, read_profile
from agentbatch.trace.recorder import Recorder


def admitted(key: str, at_s: float, label: str = "") -> Admitted:
    return Admitted(at_s=at_s, submitted_s=0.0, key=key, label=label or key)


def ended(key: str, at_s: float, outcome: Any = "ok", label: str = "") -> TrajectoryEnded:
    return TrajectoryEnded(at_s=at_s, key=key, label=label or key, admitted_s=0.0, outcome=outcome, turns=1)


def turn(label: str, started_s: float, ended_s: float) -> TurnEnded:
    return TurnEnded(
        label=label, turn=1, started_s=started_s, first_byte_s=None, ended_s=ended_s, outcome="ok", endpoint="/",
        streamed=False, attempts=1,
    )  # fmt: skip


def job(label: str, asked_s: float, granted_s: float | None, ended_s: float) -> JobEnded:
    return JobEnded(
        label=label, resource="default", turns=1, asked_s=asked_s, granted_s=granted_s, ended_s=ended_s, outcome="ok"
    )


def recorded(folder: Path, *events: Event) -> Path:
    path = folder / "run.jsonl"
    with Recorder(path) as recorder:
        recorder.write(RunStarted(run="r", version="0", started_unix_s=0.0, cs=9, ce={"default": 1}))
        for event in events:
            recorder.write(event)
    return path


def traced(folder: Path, *trajectories: dict[str, Any]) -> Path:
    path = folder / "trace.jsonl"
    lines = [{"about": "a test"}, *({"domain": "d", **one} for one in trajectories)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_run_tells_active_seconds_without_waits_for_slots(tmp_path: Path) -> None:
    path = recorded(
        tmp_path,
        admitted("a", 10.0),
        turn("a", 10.0, 14.0),
        job("a", 14.0, 100.0, 107.0),  # 86 s in the queue
        turn("a", 109.0, 110.0),  # 2 s of its own code before it
        ended("a", 110.0),
        admitted("b", 0.0),
        ChildStarted(at_s=0.0, label="b/judge", parent="b"),
        turn("b", 0.0, 6.0),
        job("b/judge", 1.0, 8.0, 9.0),  # 5 s of its 7 s wait lie under the parent's turn
        job("b", 9.0, None, 20.0),  # withdrawn
        ended("b", 20.0),
    )
    assert read_profile(path) == {"a": 14.0, "b": 7.0}
    assert read_profile(path, env_cap_s=3.0) == {"a": 10.0, "b": 7.0}
    assert read_profile(path, env_cap_s=3.0, user_cap_s=0.0) == {"a": 10.0, "b": 7.0}


def test_what_did_not_complete_took_at_least_so_long(tmp_path: Path) -> None:
    path = recorded(
        tmp_path,
        *(admitted(f"k{n}", 0.0) for n in range(3)), *(ended(f"k{n}", 10.0 * n + 10) for n in range(3)),
        admitted("at once", 0.0), ended("at once", 0.5, "failed"),
        admitted("timed out", 0.0), ended("timed out", 500.0, "failed"),
        admitted("stopped", 0.0), ended("stopped", 25.0, "cancelled"),
        admitted("killed", 490.0), turn("killed", 490.0, 540.0),
        TrajectoryEnded(at_s=540.0, key="never", label="never", admitted_s=None, outcome="cancelled", turns=0),
        admitted("again", 0.0), ended("again", 1.0, "failed"),
        admitted("again", 1.0, "again~2"), ended("again", 31.0, label="again~2"),
        admitted("again", 40.0, "again~3"), ended("again", 50.0, label="again~3"),
    )  # fmt: skip
    assert read_profile(path) == {
        "k0": 10.0, "k1": 20.0, "k2": 30.0, "again": 20.0,  # of 30 and 10: only those that completed
        "at once": 20.0, "stopped": 25.0, "timed out": 500.0, "killed": 50.0,
    }  # fmt: skip


def test_a_trace_tells_by_trajectory_id(tmp_path: Path) -> None:
    path = traced(
        tmp_path,
        {"id": "a", "env_prepare_s": 7.0, "turns": [
            {"prompt_tokens": 9, "output_tokens": 10, "infer_s": 2.0, "env_s": 50.0, "user_s": 200.0},
            {"prompt_tokens": 9, "output_tokens": 5, "infer_s": 1.0, "user_s": 1000.0},  # the last one delays nothing
        ]},
        {"id": "b", "turns": [{"prompt_tokens": 9, "output_tokens": 30}]},  # at 3 s / 15 tokens
    )  # fmt: skip
    assert read_profile(path) == {"a": 260.0, "b": 6.0}
    assert read_profile(path, env_cap_s=5.0) == {"a": 213.0, "b": 6.0}
    assert read_profile(path, env_cap_s=0.0, user_cap_s=0.0) == {"a": 3.0, "b": 6.0}


def test_a_trace_that_times_no_turn_goes_by_tokens(tmp_path: Path) -> None:
    one = {"id": "a", "turns": [{"prompt_tokens": 9, "output_tokens": 100, "env_s": 3.0}]}
    assert read_profile(traced(tmp_path, one)) == {"a": 100 * OUTPUT_TOKEN_S + 3.0}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty: a profile is the record of a run, or a trace"),
        ("[]\n", "expected a JSON object"),
        ("nonsense\n", "is not valid JSON"),
        ('{"about": "nothing"}\n', "holds no trajectory"),
        ('{"id": "a", "domain": "d", "turns": [{"prompt_tokens": 1, "output_tokens": 0}]}\n', "took any time"),
    ],
)
def test_files_that_are_no_profile(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "profile.jsonl"
    path.write_text(text)
    with pytest.raises(TraceError, match=said):
        read_profile(path)


def test_a_run_in_which_nothing_completed_is_no_profile(tmp_path: Path) -> None:
    path = recorded(tmp_path, admitted("a", 0.0), ended("a", 9.0, "failed"))
    with pytest.raises(TraceError, match="no trajectory in it completed"):
        read_profile(path)
    with pytest.raises(TraceError, match="does not exist"):
        read_profile(tmp_path / "none.jsonl")
    with pytest.raises(UsageError, match="env_cap_s must be 0 or more"):
        read_profile(path, env_cap_s=-1.0)


@given(profile=st.dictionaries(st.text(max_size=4), st.floats(0, 1e6), max_size=20), seed=st.integers() | st.text())
def test_noise_is_reproducible_whatever_the_order_of_the_keys(profile: dict[str, float], seed: int | str) -> None:
    assert noisy(profile, 0.0, seed) == profile
    blurred = noisy(profile, 1.0, seed)
    assert blurred == noisy(dict(reversed(profile.items())), 1.0, seed)
    assert blurred.keys() == profile.keys()
    assert all((blurred[key] > 0) == (seconds > 0) for key, seconds in profile.items() if not 0 < seconds < 1e-300)


def test_noise_is_log_normal_with_median_1() -> None:
    factors = sorted(map(math.log, noisy(dict.fromkeys(map(str, range(4001)), 1.0), 0.5, 7).values()))
    assert abs(factors[2000]) < 0.03  # the standard error of the median is 0.01
    assert abs(statistics.stdev(factors) - 0.5) < 0.02
    assert noisy({"a": 1.0}, 1.0, 1) != noisy({"a": 1.0}, 1.0, 2)


@pytest.mark.parametrize("sigma", [-0.1, math.nan, math.inf, 5.1])
def test_noise_out_of_range(sigma: float) -> None:
    with pytest.raises(UsageError, match="must be 0 to 5"):
        noisy({"a": 1.0}, sigma, 0)
