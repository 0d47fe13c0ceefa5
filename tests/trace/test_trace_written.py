"""Trace files that we write: what reads back, what is on disk, and what is refused."""

import errno
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentbatch.errors import StartUpError, UsageError
from agentbatch.trace.workload import TraceTrajectory, TraceTurn, read_workload, write_workload

SAMPLE = Path(__file__).parents[2] / "examples" / "traces" / "sample.jsonl"
ONE = TraceTrajectory(id="a", domain="d", turns=(TraceTurn(prompt_tokens=10, output_tokens=2),))

seconds = st.none() | st.integers(0, 10**10).map(lambda micros: round(micros / 1e6, 6))
turns = st.builds(
    TraceTurn, prompt_tokens=st.integers(0, 10**6), output_tokens=st.integers(0, 10**4), env_s=seconds, user_s=seconds,
    infer_s=seconds, ttft_s=seconds, env_calls=st.none() | st.integers(0, 9), role=st.none() | st.text(),
    env_name=st.none() | st.text() | st.lists(st.text(), max_size=3).map(tuple),
)  # fmt: skip
trajectories = st.builds(
    TraceTrajectory, id=st.text(min_size=1), domain=st.text(min_size=1), turns=st.lists(turns, min_size=1).map(tuple),
    model=st.none() | st.text(), system_tokens=st.integers(0, 999), tool_tokens=st.integers(0, 999),
    env_prepare_s=seconds,
)  # fmt: skip


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(trajectories, min_size=1, max_size=4, unique_by=lambda one: one.id), st.text())
def test_what_is_written_reads_back(tmp_path: Path, made: list[TraceTrajectory], about: str) -> None:
    path = tmp_path / "made.jsonl"
    path.unlink(missing_ok=True)
    write_workload(path, made, about)
    assert read_workload(path) == made
    assert json.loads(path.read_text(encoding="utf-8").split("\n")[0]) == {"about": about}


def test_the_sample_reads_back(tmp_path: Path) -> None:
    sample = read_workload(SAMPLE)
    write_workload(tmp_path / "copy.jsonl", sample, "a copy")
    assert read_workload(tmp_path / "copy.jsonl") == sample


def test_lines_are_short(tmp_path: Path) -> None:
    path = tmp_path / "made.jsonl"
    turn = TraceTurn(prompt_tokens=10, output_tokens=2, env_s=1.23456789)
    write_workload(path, [ONE, TraceTrajectory(id="b", domain="d", turns=(turn,), env_prepare_s=0.1 + 0.2)], "ü")
    assert path.read_bytes().decode().split("\n") == [
        '{"about":"ü"}',
        '{"id":"a","domain":"d","turns":[{"prompt_tokens":10,"output_tokens":2}]}',
        '{"id":"b","domain":"d","turns":[{"prompt_tokens":10,"output_tokens":2,"env_s":1.234568}],"env_prepare_s":0.3}',
        "",
    ]


def test_an_existing_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text("mine")
    with pytest.raises(StartUpError, match=r"mine\.jsonl: it exists, and a trace is never overwritten; name another"):
        write_workload(path, [ONE], "")
    assert path.read_text() == "mine"


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartUpError, match=r"there is no folder .*nowhere; make it first"):
        write_workload(tmp_path / "nowhere" / "made.jsonl", [ONE], "")


class Piecemeal(io.FileIO):
    """A file that takes three bytes at a time, and none any more once `room` is used up."""

    room = 10**6

    def write(self, data: Any) -> int:
        if self.tell() >= self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(memoryview(data)[:3])


@pytest.fixture
def piecemeal(monkeypatch: pytest.MonkeyPatch) -> type[Piecemeal]:
    monkeypatch.setattr(Path, "open", lambda path, mode, **options: Piecemeal(path, mode))
    return Piecemeal


@pytest.mark.usefixtures("piecemeal")
def test_a_write_that_takes_a_part_goes_on(tmp_path: Path) -> None:
    write_workload(tmp_path / "made.jsonl", [ONE], "x")
    lines = (tmp_path / "made.jsonl").read_bytes().splitlines()
    assert [json.loads(line).get("id") for line in lines] == [None, "a"]


def test_a_full_disk_leaves_no_part_of_a_file(
    tmp_path: Path, piecemeal: type[Piecemeal], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(piecemeal, "room", 100)
    with pytest.raises(StartUpError, match=r"cannot write .*made\.jsonl: No space left on device"):
        write_workload(tmp_path / "made.jsonl", [ONE, ONE.model_copy(update={"id": "b"})], "x")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("made", "said"),
    [([], "at least one trajectory"), ([ONE, ONE], "two trajectories are called 'a': ids are unique")],
)
def test_what_would_not_read_is_not_written(tmp_path: Path, made: list[TraceTrajectory], said: str) -> None:
    path = tmp_path / "made.jsonl"
    with pytest.raises(UsageError, match=said):
        write_workload(path, made, "")
    assert not path.exists()
