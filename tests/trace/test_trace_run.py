"""Run files: what is refused, in which words, and what a torn tail leaves."""

import json
from pathlib import Path
from typing import Any

import pytest
from trace_events import admitted, ended, run_started, turn

from agentbatch.errors import TraceError
from agentbatch.trace import read_run
from agentbatch.trace.recorder import encode

RUN = encode(run_started())


def write(folder: Path, *lines: bytes) -> Path:
    path = folder / "run.jsonl"
    path.write_bytes(b"".join(lines))
    return path


def refusal(path: Path) -> str:
    with pytest.raises(TraceError) as caught:
        read_run(path)
    return str(caught.value)


def changed(record: Any, /, **fields: Any) -> bytes:
    values = json.loads(encode(record)) | fields
    return json.dumps({name: value for name, value in values.items() if value is not ...}).encode() + b"\n"


@pytest.mark.parametrize(
    ("bad", "field", "problem"),
    [
        (changed(admitted("a"), at_s=...), "at_s", "missing"),
        (changed(admitted("a"), at_s="1"), "at_s", 'expected a valid number, got "1"'),
        (changed(admitted("a"), at_s=float("nan")), "at_s", "expected a finite number, got NaN"),
        (changed(turn("a", 1, 0.0, 1.0), outcome="fine"), "outcome", "'failed', 'cancelled' or 'overrun'"),
        (changed(turn("a", 1, 0.0, 1.0), turn=1.5), "turn", "expected a valid integer, got 1.5"),
        (changed(turn("a", 1, 0.0, 1.0), streamed=0), "streamed", "expected a valid boolean, got 0"),
        (changed(run_started(), ce={"a": None}), "ce.a", "expected a valid integer, got null"),
        (changed(run_started(), workers="w"), "workers", 'got "w"'),
        (changed(admitted("a"), event="admited"), "event", 'unknown event "admited": expected one of run, workload'),
        (changed(admitted("a"), event=["turn"]), "event", 'unknown event ["turn"]'),
        (changed(admitted("a"), event=...), "event", "missing"),
    ],
)
def test_a_bad_field_is_named_with_its_file_and_line(tmp_path: Path, bad: bytes, field: str, problem: str) -> None:
    path = write(tmp_path, encode(admitted("z")), b"\n", bad, encode(ended("z", 1.0)))
    message = refusal(path)
    assert message.startswith(f"{path}, line 3, field {field}: ")
    assert problem in message
    write(tmp_path, encode(admitted("z")), b"\n", bad)
    assert refusal(path) == message, "a whole but wrong last line is no torn one"


def test_infinity_is_found_inside_a_mapping(tmp_path: Path) -> None:
    path = write(tmp_path, RUN.replace(b'{"default":2}', b'{"default":1e999}'))
    assert refusal(path) == f"{path}, line 1, field ce.default: expected a finite number, got Infinity"


@pytest.mark.parametrize("bad", [b'{"event":"turn","label":\n', b"\xff\xfe\n", b"\x00\x00\x00\n", b"nonsense"])
def test_broken_json_is_tolerated_at_the_very_end_only(tmp_path: Path, bad: bytes) -> None:
    run = read_run(write(tmp_path, RUN, bad))
    assert run.events == (run_started(),)
    assert run.torn is not None
    assert run.torn.startswith("line 2, the last, is not ")
    path = write(tmp_path, RUN, bad.rstrip(b"\n") + b"\n", encode(admitted("a")))
    assert refusal(path).startswith(f"{path}, line 2: is not ")


def test_a_record_torn_in_its_first_line_reads_as_no_events(tmp_path: Path) -> None:
    run = read_run(write(tmp_path, RUN[:20]))
    assert run.events == ()
    assert run.torn is not None


def test_a_newer_schema_is_refused_with_advice(tmp_path: Path) -> None:
    newer = changed(run_started(), schema=2, version="9.1", cs="auto", ce=...)
    message = refusal(write(tmp_path, newer, b'{"event":"hologram"}\n'))
    assert ", line 1, field schema: written by agentbatch 9.1 as schema 2; this one reads schemas up to 1" in message
    assert "pip install -U agentbatch" in message


def test_a_field_added_later_with_a_default_is_optional_both_ways(tmp_path: Path) -> None:
    older, newer = changed(run_started(), speedup=...), changed(admitted("a"), mood="good")
    assert read_run(write(tmp_path, older, newer)).events == (run_started(), admitted("a"))


def test_other_files_are_recognised(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none") == f"{tmp_path / 'none'} does not exist"
    assert "is a folder" in refusal(tmp_path)
    assert "is empty: no run was recorded in it" in refusal(write(tmp_path, b"\n"))
    trace = b'{"id":"a","domain":"d","turns":[]}\n'
    assert "line 1: this is a trace, not the record of a run" in refusal(write(tmp_path, trace))
    assert "line 1: this is a trace" in refusal(write(tmp_path, b'{"about":"x"}\n', trace))


def test_two_runs_in_one_file_are_refused(tmp_path: Path) -> None:
    message = refusal(write(tmp_path, RUN, encode(admitted("a")), RUN))
    assert message.endswith("line 3: a second run starts here, the first on line 1: one file holds one run")


def test_a_doubled_event_is_found(tmp_path: Path) -> None:
    doubled = turn("a", 1, 0.0, 1.0)
    again = turn("a", 1, 5.0, 6.0)  # the same turn asked for anew after it had failed
    path = write(tmp_path, RUN, encode(doubled), encode(again), encode(doubled), encode(admitted("a")))
    run = read_run(path)
    assert len(run.events) == 5
    assert run.duplicates == (doubled,)
