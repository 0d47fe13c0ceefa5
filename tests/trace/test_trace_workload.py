"""Trace files: what reads, and the sentence for what does not (file, line, field)."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agentbatch.errors import TraceError, UsageError
from agentbatch.trace import lines
from agentbatch.trace.workload import TraceTrajectory, TraceTurn, cap, limit, read_workload

SAMPLE = Path(__file__).parents[2] / "examples" / "traces" / "sample.jsonl"
TURN = {"prompt_tokens": 10, "output_tokens": 2}


def line(**fields: Any) -> str:
    return json.dumps({"id": "a", "domain": "d", "turns": [TURN], **fields})


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "trace.jsonl"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(TraceError) as caught:
        read_workload(path)
    return str(caught.value)


def test_reads_every_field(tmp_path: Path) -> None:
    turns = [
        {**TURN, "infer_s": 1, "ttft_s": 0.5, "env_s": 3, "user_s": 2.5}
        | {"env_name": "bash", "env_calls": 2, "role": "agent"},
        {**TURN, "env_name": ["a", "b"], "env_s": None, "unknown": {"x": 1}},
    ]
    text = line(turns=turns, model="m", system_tokens=5, tool_tokens=7, env_prepare_s=8.5, reward=0.0)
    (one,) = read_workload(write(tmp_path, text))
    assert one == TraceTrajectory(
        id="a",
        domain="d",
        model="m",
        system_tokens=5,
        tool_tokens=7,
        env_prepare_s=8.5,
        turns=(
            TraceTurn(
                prompt_tokens=10, output_tokens=2, infer_s=1.0, ttft_s=0.5, env_s=3.0, user_s=2.5, env_name="bash",
                env_calls=2, role="agent",
            ),
            TraceTurn(prompt_tokens=10, output_tokens=2, env_name=("a", "b")),
        ),
    )  # fmt: skip
    assert one.environment_s == 11.5
    with pytest.raises(ValidationError, match="frozen"):
        one.id = "b"  # type: ignore[misc]


def test_blank_lines_an_about_line_crlf_and_a_byte_order_mark_are_fine(tmp_path: Path) -> None:
    text = "\ufeff\r\n" + json.dumps({"about": {"cut": True}}) + "\r\n\r\n" + line() + "\r\n  \r\n" + line(id="b")
    assert [one.id for one in read_workload(write(tmp_path, text))] == ["a", "b"]


@pytest.mark.parametrize(
    ("bad", "field", "problem"),
    [
        (line(id=""), "id", "should have at least 1 character"),
        (line(id=3), "id", "expected a valid string, got 3"),
        (line(turns=[]), "turns", "expected at least one entry"),
        (line(turns={}), "turns", "expected a valid array, got {}"),
        (line(turns=[TURN, 3]), "turns[1]", "expected an object, got 3"),
        (line(turns=[{"prompt_tokens": 1}]), "turns[0].output_tokens", "missing"),
        (line(turns=[{**TURN, "prompt_tokens": -1}]), "turns[0].prompt_tokens", "greater than or equal to 0, got -1"),
        (line(turns=[{**TURN, "prompt_tokens": 1.0}]), "turns[0].prompt_tokens", "expected a valid integer, got 1.0"),
        (line(turns=[{**TURN, "prompt_tokens": True}]), "turns[0].prompt_tokens", "expected a valid integer, got true"),
        (line(turns=[{**TURN, "output_tokens": 10**30}]), "turns[0].output_tokens", "expected less than or equal"),
        (line(turns=[TURN, {**TURN, "env_s": float("nan")}]), "turns[1].env_s", "expected a finite number, got NaN"),
        (line(turns=[{**TURN, "user_s": float("inf")}]), "turns[0].user_s", "expected a finite number, got Infinity"),
        (line(turns=[{**TURN, "infer_s": 1e308}]), "turns[0].infer_s", "less than or equal to 1000000000"),
        (line(turns=[{**TURN, "infer_s": -0.1}]), "turns[0].infer_s", "greater than or equal to 0, got -0.1"),
        (line(turns=[{**TURN, "env_s": "3"}]), "turns[0].env_s", 'expected a valid number, got "3"'),
        (line(turns=[{**TURN, "env_name": [1]}]), "turns[0].env_name", "a string or a list of strings, got [1]"),
        (line(env_prepare_s=-1), "env_prepare_s", "greater than or equal to 0"),
        (line(system_tokens=None), "system_tokens", "expected a valid integer, got null"),
        (json.dumps({"id": "a", "turns": [TURN]}), "domain", "missing"),
        (json.dumps({"id": "a", "domain": "d"}), "turns", "missing"),
        (json.dumps({"event": "run", "run": "r"}), "event", "record of a run, not a trace"),
        (json.dumps({"about": "again"}), "about", "only the first line"),
        (line(id="first"), "id", '"first" is the id of line 2 already'),
    ],
)
def test_a_bad_field_is_named_with_its_file_and_line(tmp_path: Path, bad: str, field: str, problem: str) -> None:
    path = write(tmp_path, "\n" + line(id="first") + "\n" + bad + "\n")
    message = refusal(path)
    assert message.startswith(f"{path}, line 3, field {field}: ")
    assert problem in message


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (b'{"id": "a"', "is not valid JSON: EOF while parsing an object at column 10"),
        (b"{'id': 1}", "is not valid JSON"),
        (b"[" * 5000, "is not valid JSON: recursion limit"),
        (b"[1]", "expected a JSON object, got [1]"),
        (b'{"id": "\xe9"}', "is not UTF-8: byte 0xe9 at column 9"),
        (b"\x1f\x8b\x08", "is not UTF-8: byte 0x8b at column 2"),
        (b'"' + b"x" * 500 + b'"', "…"),
    ],
)
def test_a_line_that_is_no_json_object_is_named(tmp_path: Path, bad: bytes, problem: str) -> None:
    path = write(tmp_path, line().encode() + b"\n" + bad + b"\n")
    message = refusal(path)
    assert message.startswith(f"{path}, line 2: ")
    assert problem in message
    assert len(message) < len(str(path)) + 200


def test_a_line_too_long_is_refused_before_it_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lines.MAX_LINE_BYTES == 64 * 2**20
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 2**20)
    fits = line(model="x" * (2**20 - 200))
    assert len(read_workload(write(tmp_path, fits + "\n"))) == 1
    assert "line 2: is longer than 1 MiB" in refusal(write(tmp_path, line() + "\n" + line(model="x" * 2**20)))


def test_what_is_no_file_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(tmp_path / "none.jsonl") == f"{tmp_path / 'none.jsonl'} does not exist"
    assert refusal(tmp_path).startswith(f"{tmp_path} is a folder")
    for empty in ("", "\n\n", '{"about": "nothing"}\n'):
        assert "holds no trajectory" in refusal(write(tmp_path, empty))

    def forbidden(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    path = write(tmp_path, line())
    monkeypatch.setattr(Path, "open", forbidden)
    assert refusal(path) == f"cannot read {path}: Permission denied"


NUMBERS = st.floats(0, 1e6)
TURNS = st.builds(
    TraceTurn,
    prompt_tokens=st.integers(0, 10**6),
    output_tokens=st.integers(0, 10**6),
    env_s=st.none() | NUMBERS,
    user_s=st.none() | NUMBERS,
    env_name=st.none() | st.text(max_size=5) | st.lists(st.text(max_size=5), max_size=3).map(tuple),
)
TRAJECTORIES = st.builds(
    TraceTrajectory,
    id=st.text(min_size=1),
    domain=st.text(min_size=1),
    turns=st.lists(TURNS, min_size=1, max_size=5).map(tuple),
    env_prepare_s=st.none() | NUMBERS,
)


@given(st.lists(TRAJECTORIES, min_size=1, max_size=5, unique_by=lambda one: one.id))
def test_what_was_dumped_reads_back(tmp_path_factory: pytest.TempPathFactory, workload: list[TraceTrajectory]) -> None:
    path = tmp_path_factory.mktemp("w") / "t.jsonl"
    path.write_text("\n".join(one.model_dump_json() for one in workload), encoding="utf-8", newline="\n")
    assert read_workload(path) == workload


@given(TRAJECTORIES, st.none() | NUMBERS, st.none() | NUMBERS)
def test_cap_shortens_what_is_longer_and_nothing_else(
    one: TraceTrajectory, env_cap_s: float | None, user_cap_s: float | None
) -> None:
    before = one.model_copy(deep=True)
    capped = cap(one, env_cap_s=env_cap_s, user_cap_s=user_cap_s)
    assert one == before

    def expected(seconds: float | None, limit_s: float | None) -> float | None:
        return seconds if seconds is None or limit_s is None or seconds <= limit_s else limit_s

    assert capped.env_prepare_s == expected(one.env_prepare_s, env_cap_s)
    for was, turn in zip(one.turns, capped.turns, strict=True):
        assert turn.env_s == expected(was.env_s, env_cap_s)
        assert turn.user_s == expected(was.user_s, user_cap_s)
        assert turn.model_copy(update={"env_s": was.env_s, "user_s": was.user_s}) == was
    assert cap(capped, env_cap_s=env_cap_s, user_cap_s=user_cap_s) == capped


@pytest.mark.parametrize("bad", [-1.0, float("nan")])
def test_a_cap_below_zero_is_refused(bad: float) -> None:
    one = TraceTrajectory.model_validate_json(line())
    with pytest.raises(UsageError, match="env_cap_s must be 0 or more seconds"):
        cap(one, env_cap_s=bad)
    with pytest.raises(UsageError, match="user_cap_s must be 0 or more seconds"):
        cap(one, user_cap_s=bad)


def test_limit_takes_the_first() -> None:
    workload = [TraceTrajectory.model_validate_json(line(id=str(number))) for number in range(5)]
    assert limit(workload, 2) == workload[:2]
    assert limit(workload, 9) == limit(workload, None) == workload
    with pytest.raises(UsageError, match="at least 1, not 0"):
        limit(workload, 0)


def test_the_sample_is_what_it_says() -> None:
    workload = read_workload(SAMPLE)
    records = [json.loads(text) for text in SAMPLE.read_text(encoding="utf-8").splitlines()]
    sources = Counter(record["source"] for record in records[1:])
    assert len(workload) == sum(sources.values()) >= 100
    assert set(sources) == {"claude_code", "swe_agent", "tau2"}
    assert max(len(one.turns) for one in workload) <= 40
    assert max(turn.prompt_tokens + turn.output_tokens for one in workload for turn in one.turns) <= 32_000
    assert min(len(one.turns) for one in workload if one.domain == "claude-code") >= 3
    assert {record["source"] for record in records[1:21]} == set(sources), "the sources are not interleaved"
    about = records[0]["about"]
    assert "40 turns" in about
    assert "32000 tokens" in about
    assert about.startswith(f"{len(workload)} ")
    attribution = SAMPLE.with_name("ATTRIBUTION.md").read_text(encoding="utf-8")
    for source, count in sources.items():
        assert re.search(rf"`{source}` \| {count} \|", attribution)
    assert "MIT License" in attribution
    assert "Apache License" in attribution
    assert SAMPLE.stat().st_size < 400_000
