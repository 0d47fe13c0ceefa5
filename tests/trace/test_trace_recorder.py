"""Recording and reading back: nothing lost, nothing doubled, whatever happens to the writer."""

import dataclasses
import errno
import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_events import OTHER_EVENTS, RUN_STARTED, RUNS, admitted, ended, run_started, turn

from agentbatch.errors import StartUpError, UsageError
from agentbatch.events import EVENT_TYPES, Event, Notice
from agentbatch.trace import Recorder, RecorderStatistics, read_run
from agentbatch.trace.recorder import encode


def record(path: Path, events: list[Event]) -> None:
    with Recorder(path) as recorder:
        for event in events:
            recorder.write(event)


@given(RUNS)
def test_what_was_recorded_reads_back(tmp_path_factory: pytest.TempPathFactory, events: list[Event]) -> None:
    path = tmp_path_factory.mktemp("r") / "run.jsonl"
    record(path, events)
    run = read_run(path)
    assert list(run.events) == events
    assert run.torn is None
    assert run.path == path


@given(st.one_of(OTHER_EVENTS, RUN_STARTED))
def test_a_line_names_its_event_and_every_field(event: Event) -> None:
    data = encode(event)
    assert data.endswith(b"\n")
    assert data.count(b"\n") == 1
    values = json.loads(data)
    assert values.pop("event") == event.event
    assert list(values) == [field.name for field in dataclasses.fields(event)]


def test_every_event_type_has_a_strategy() -> None:
    tags = {kind.event for kind in EVENT_TYPES}
    assert len(tags) == len(EVENT_TYPES)
    assert all(kind.__name__ in f"{OTHER_EVENTS!r} {RUN_STARTED!r}" for kind in EVENT_TYPES)


def test_floats_are_kept_to_a_microsecond() -> None:
    values = json.loads(encode(turn("a", 1, 1 / 3, 2.0)))
    assert values["started_s"] == 0.333333
    values = json.loads(encode(run_started(started_unix_s=1_764_000_000.1234567)))
    assert values["started_unix_s"] == 1_764_000_000.123457


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_figure_that_no_reader_takes_is_refused_before_it_is_written(tmp_path: Path, bad: float) -> None:
    with Recorder(tmp_path / "r") as recorder:
        with pytest.raises(UsageError, match=r"TurnEnded.ended_s holds (nan|inf)"):
            recorder.write(turn("a", 1, 0.0, bad))
        with pytest.raises(UsageError, match=r"RunStarted.ce holds (nan|inf)"):
            recorder.write(run_started(ce={"default": bad}))
        assert recorder.statistics().events == 0


def test_odd_texts_and_details_do_not_stop_a_record(tmp_path: Path) -> None:
    error: Any = ValueError("not a string")
    details: Any = {"ratio": float("nan"), "path": Path("/tmp"), "third": 1 / 3}
    events = [
        turn("\udc80\u2028\n\x00é", 1, 0.0, 1.0, error=error),
        Notice(at_s=0.0, kind="k", message="m", details=details),
    ]
    record(tmp_path / "r", events)
    read, notice = read_run(tmp_path / "r").events
    assert read.label == "r-?\u2028\n\x00é"
    assert read.error == "not a string"
    assert notice.details == {"ratio": "nan", "path": "/tmp", "third": 0.333333}


def test_each_event_is_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: written.append(bytes(data)) or real(fd, data))
    record(tmp_path / "r", [run_started(), admitted("a"), ended("a", 1.0, error="x" * 100_000)])
    assert len(written) == 3
    assert b"".join(written) == (tmp_path / "r").read_bytes()


def test_statistics_and_repr(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with Recorder(path) as recorder:
        recorder.write(run_started())
        assert recorder.statistics() == RecorderStatistics(events=1, bytes=path.stat().st_size, dropped=0, open=True)
        assert repr(recorder) == f"<Recorder {str(path)!r} open, 1 events, {path.stat().st_size} bytes>"
    recorder.close()
    recorder.write(admitted("late"))
    assert recorder.statistics() == RecorderStatistics(events=1, bytes=path.stat().st_size, dropped=1, open=False)
    assert "closed" in repr(recorder)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_record_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("precious")
    with pytest.raises(StartUpError, match="the file exists, and a record is never overwritten; name another"):
        Recorder(path)
    assert path.read_text() == "precious"


def test_a_place_where_no_file_can_be_made_says_why(tmp_path: Path) -> None:
    with pytest.raises(StartUpError, match=r"there is no folder .*missing; make it first"):
        Recorder(tmp_path / "missing" / "run.jsonl")
    with pytest.raises(StartUpError, match="it is a folder; name a file in it"):
        Recorder(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(StartUpError, match="Not a directory"):
        Recorder(tmp_path / "file" / "run.jsonl")


def full_disk(monkeypatch: pytest.MonkeyPatch, after_bytes: int) -> None:
    """Let `os.write` take no more than `after_bytes`, the last of them as a short write."""
    real, left = os.write, [after_bytes]

    def write(fd: int, data: memoryview) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = real(fd, data[: left[0]])
        left[0] -= count
        return count

    monkeypatch.setattr(os, "write", write)


@pytest.mark.parametrize("extra", [0, 1, 20])
def test_a_full_disk_is_reported_once_and_recording_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extra: int
) -> None:
    whole = len(encode(run_started())) + len(encode(admitted("a")))
    full_disk(monkeypatch, whole + extra)
    failures: list[StartUpError] = []
    recorder = Recorder(tmp_path / "r", on_error=failures.append)
    for event in (run_started(), admitted("a"), ended("a", 1.0), ended("b", 2.0)):
        recorder.write(event)
    recorder.close()
    assert len(failures) == 1
    assert str(failures[0]) == f"cannot write to {tmp_path / 'r'}: No space left on device; 2 events are kept"
    assert failures[0].errno == errno.ENOSPC
    assert isinstance(failures[0].__cause__, OSError)
    assert recorder.statistics() == RecorderStatistics(events=2, bytes=whole, dropped=2, open=False)
    run = read_run(tmp_path / "r")
    assert len(run.events) == 2
    assert run.torn is None


def test_without_a_callback_a_full_disk_raises_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full_disk(monkeypatch, 0)
    recorder = Recorder(tmp_path / "r")
    with pytest.raises(StartUpError, match="No space left on device; 0 events are kept"):
        recorder.write(run_started())
    recorder.write(run_started())
    recorder.close()
    assert recorder.statistics().dropped == 2


def test_a_late_error_on_closing_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[StartUpError] = []
    recorder = Recorder(tmp_path / "r", on_error=failures.append)
    real = os.close

    def close(fd: int) -> None:
        real(fd)
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    with monkeypatch.context() as patch:
        patch.setattr(os, "close", close)
        recorder.close()
        recorder.close()
    assert [str(failure) for failure in failures] == [f"{tmp_path / 'r'} may lack its last events: Disk quota exceeded"]


def test_threads_do_not_mix_their_lines(tmp_path: Path) -> None:
    with Recorder(tmp_path / "r") as recorder:
        recorder.write(run_started())

        def work(name: str) -> None:
            for number in range(200):
                recorder.write(turn(name, number, 0.0, 1.0))

        threads = [threading.Thread(target=work, args=(str(name),)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    run = read_run(tmp_path / "r")
    assert len(run.events) == recorder.statistics().events == 801
    assert run.duplicates == ()


@settings(max_examples=40)  # each example reads a file for every byte of a line
@given(RUNS.filter(lambda events: len(events) > 1))
def test_a_tail_torn_at_any_byte_loses_that_event_only(
    tmp_path_factory: pytest.TempPathFactory, events: list[Event]
) -> None:
    path = tmp_path_factory.mktemp("r") / "run.jsonl"
    whole = [encode(event) for event in events]
    before, last = b"".join(whole[:-1]), whole[-1]
    for kept in range(len(last)):
        path.write_bytes(before + last[:kept])
        run = read_run(path)
        if kept == len(last) - 1:  # only the line end is missing: nothing is lost
            assert list(run.events) == events
            assert run.torn is None
        else:
            assert list(run.events) == events[:-1]
            assert (run.torn is None) == (kept == 0)
