"""A run file made a workload again (agentbatch.trace.convert)."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from trace_events import admitted, ended, job, run_started, turn

from agentbatch.emulator import serve
from agentbatch.errors import TraceError
from agentbatch.events import ChildStarted, Event
from agentbatch.replay.options import ReplayOptions
from agentbatch.replay.runner import replay
from agentbatch.trace import RunFile, TraceTrajectory, TraceTurn
from agentbatch.trace.convert import Converted, convert, read_converted, read_trajectories
from agentbatch.trace.profile import read_profile

COUNTS = {"prompt_tokens": 100, "output_tokens": 10}


def converted(*events: Event) -> Converted:
    return convert(RunFile(path=Path("run.jsonl"), events=events))


def only(*events: Event) -> TraceTrajectory:
    (trajectory,) = converted(*events).trajectories
    return trajectory


def write(path: Path, *events: Event) -> Path:
    path.write_text("".join(json.dumps({"event": event.event, **asdict(event)}) + "\n" for event in events))
    return path


@pytest.mark.parametrize("read", [read_converted, read_profile])
def test_a_pipe_is_refused_since_its_beginning_could_not_be_read_again(read: Any, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(TraceError, match="pipe is a pipe or a device, and has to be read twice: write it to a file"):
        read(pipe)


def test_turns_stages_and_gaps() -> None:
    made = only(
        run_started(),
        admitted("a"),
        job("a", 0.0, 1.0, 3.0, turns=0, resource="docker"),
        turn("a", 1, 3.0, 5.0, prompt_tokens=100, output_tokens=10, first_byte_s=3.5, streamed=True),
        job("a", 5.0, 7.0, 9.0, resource="bash", operations=2),
        turn("a", 2, 9.0, 10.0, prompt_tokens=150, output_tokens=20),
        turn("a", 3, 40.0, 41.0, prompt_tokens=180, output_tokens=5),
        job("a", 41.0, 41.0, 42.0),
        ended("a", 42.0),
    )
    assert made == TraceTrajectory(
        id="a",
        domain="r",
        env_prepare_s=2.0,
        turns=(
            TraceTurn(
                prompt_tokens=100, output_tokens=10, infer_s=2.0, ttft_s=0.5, env_s=2.0, env_name="bash", env_calls=2
            ),
            TraceTurn(prompt_tokens=150, output_tokens=20, infer_s=1.0, user_s=30.0),
            TraceTurn(prompt_tokens=180, output_tokens=5, infer_s=1.0, env_s=1.0, env_name="default", env_calls=1),
        ),
    )


def test_several_jobs_after_one_turn_are_one_stage_and_one_never_granted_is_none() -> None:
    made = only(
        admitted("a"),
        turn("a", 1, 0.0, 1.0, **COUNTS),
        job("a", 1.0, 1.0, 2.0, resource="bash"),
        job("a", 2.0, 2.0, 5.0, resource="web"),
        job("a", 5.0, None, 30.0, resource="slack", outcome="cancelled"),
        turn("a", 2, 30.0, 31.0, **COUNTS),
        ended("a", 31.0),
    )
    assert (made.turns[0].env_s, made.turns[0].env_name, made.turns[0].env_calls) == (4.0, ("bash", "web"), 2)
    assert made.turns[0].user_s is None  # it waited for a slot until the next turn


def test_children_are_roles_and_their_stages_follow_their_own_turns() -> None:
    made = only(
        admitted("a"),
        ChildStarted(at_s=1.0, label="r-a/judge", parent="r-a"),
        turn("a", 1, 0.0, 1.0, **COUNTS),
        job("a/judge", 1.0, 1.0, 2.0, resource="first"),
        turn("a/judge", 1, 2.0, 4.0, prompt_tokens=50, output_tokens=5),
        turn("a", 2, 2.5, 6.0, **COUNTS),
        job("a/judge", 6.5, 6.5, 7.5, resource="second"),
        ended("a", 8.0),
    )
    assert [(one.role, one.env_name) for one in made.turns] == [(None, "first"), ("judge", "second"), (None, None)]


def test_failed_turns_are_left_out_and_order_in_the_file_does_not_matter() -> None:
    events = (
        admitted("b", submitted_s=1.0),
        turn("b", 1, 2.0, 3.0, **COUNTS),
        ended("b", 9.0),
        turn("a", 2, 4.0, 5.0, prompt_tokens=200, output_tokens=1),
        turn("a", 1, 1.0, 2.0, **COUNTS),
        turn("a", 2, 2.0, 3.0, outcome="failed"),
        ended("a", 9.0),
        admitted("a"),
    )
    made = converted(*events)
    assert [one.id for one in made.trajectories] == ["a", "b"]
    assert [one.prompt_tokens for one in made.trajectories[0].turns] == [100, 200]
    assert made.notes == ()


def test_what_did_not_end_well_is_left_out_and_counted() -> None:
    made = converted(
        admitted("ok"), turn("ok", 1, 0.0, 1.0, **COUNTS), ended("ok", 1.0),
        admitted("failed"), turn("failed", 1, 0.0, 1.0, **COUNTS), ended("failed", 1.0, "failed"),
        admitted("running"), turn("running", 1, 0.0, 1.0, **COUNTS),
        ended("drained", 1.0, "cancelled", admitted_s=None),
        admitted("blind"), turn("blind", 1, 0.0, 1.0, prompt_tokens=100), ended("blind", 1.0),
        admitted("idle"), ended("idle", 1.0),
    )  # fmt: skip
    assert [one.id for one in made.trajectories] == ["ok"]
    assert (made.not_ok, made.uncounted) == (3, 2)
    assert made.notes == (
        "3 trajectories of the run did not end well and were left out; if the run was stopped before its end, the long "
        "ones are among them, and lengths come out too short",
        "2 trajectories without token counts for every turn were left out",
    )


def test_a_run_with_nothing_to_go_by_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", run_started(), admitted("a"), turn("a", 1, 0.0, 1.0), ended("a", 1.0))
    with pytest.raises(TraceError, match=r"holds no trajectory to go by: 0 did not end well, 1 have no token"):
        read_trajectories(path)


def test_counts_that_cannot_be_are_refused_by_name() -> None:
    with pytest.raises(TraceError, match="trajectory 'a' has a turn that cannot be"):
        converted(admitted("a"), turn("a", 1, 0.0, 1.0, prompt_tokens=-1, output_tokens=1), ended("a", 1.0))


def test_overhead_of_the_runtime_is_no_wait(tmp_path: Path) -> None:
    def gap(gap_s: float, speedup: float) -> float | None:
        return only(
            run_started(speedup=speedup), admitted("a"), turn("a", 1, 0.0, 1.0, **COUNTS),
            turn("a", 2, 1.0 + gap_s, 9.0, **COUNTS), ended("a", 9.0),
        ).turns[0].user_s  # fmt: skip

    assert (gap(0.04, 1.0), gap(0.5, 1.0), gap(0.5, 100.0), gap(6.0, 100.0)) == (None, 0.5, None, 6.0)


def test_a_trace_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    record: dict[str, Any] = {"id": "a", "domain": "d", "turns": [{"prompt_tokens": 5, "output_tokens": 1}]}
    path.write_text('{"about": "x"}\n' + json.dumps(record))
    assert read_trajectories(path)[0].turns[0].prompt_tokens == 5
    assert read_converted(path).notes == ()


@pytest.mark.parametrize(
    ("content", "said"),
    [("", "holds no trajectory"), ("{", "is not valid JSON"), ('{"event": "x"}\n', "unknown event"), ("[]", "object")],
)
def test_files_that_are_neither(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "file.jsonl"
    path.write_text(content)
    with pytest.raises(TraceError, match=said):
        read_trajectories(path)
    with pytest.raises(TraceError, match="does not exist"):
        read_trajectories(tmp_path / "none.jsonl")


@pytest.mark.asyncio
async def test_a_replayed_trace_comes_back_with_the_same_tokens_and_stages(tmp_path: Path) -> None:
    workload = [
        TraceTrajectory(
            id=f"t{number}", domain="d", system_tokens=150, env_prepare_s=2.0,
            turns=tuple(
                TraceTurn(prompt_tokens=300 + 40 * number + 150 * step, output_tokens=12, env_s=20.0 + step)
                for step in range(3)
            ),
        )
        for number in range(4)
    ]  # fmt: skip
    path = tmp_path / "run.jsonl"
    async with serve(workers=2, speedup=400.0) as emulator:
        options = ReplayOptions(base_urls=tuple(emulator.urls), cs=4, ce={"default": 2}, record=str(path))
        await replay(workload, options)
    back = read_trajectories(path)
    assert [one.id for one in back] == [one.id for one in workload]
    for one, again in zip(workload, back, strict=True):
        counts = [(each.prompt_tokens, each.output_tokens, each.env_name) for each in again.turns]
        assert counts == [(each.prompt_tokens, each.output_tokens, "default") for each in one.turns]
        assert all(each.infer_s is not None and each.infer_s > 0 for each in again.turns)
        # held at least as long as recorded; the runtime's own overhead, times the speed-up, comes on top
        assert all((now.env_s or 0) >= (then.env_s or 0) for now, then in zip(again.turns, one.turns, strict=True))
        assert again.env_prepare_s is not None
        assert again.env_prepare_s >= 2.0
