"""What cannot be is refused with one line that says what to do, exit status 2, and before anything has run."""

import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agentbatch.cli.limits import parse_limits
from agentbatch.errors import UsageError


@pytest.fixture
def no_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a test in which an emulator would start."""

    def refuse(*arguments: Any, **options: Any) -> None:
        raise AssertionError("a child process was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)


pytestmark = pytest.mark.usefixtures("no_children")

EMULATED = ("--emulate", 1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--ce", "0"), "--ce takes a number of at least 1"),
        (("--ce", "-1"), "not '-1'"),
        (("--ce", "abc"), "not 'abc'"),
        (("--ce", ""), "not ''"),
        (("--ce", "1.5"), "not '1.5'"),
        (("--ce", "a=1,a=2"), "names all different"),
        (("--ce", "=2"), "not '=2'"),
        (("--ce", "bash="), "not 'bash='"),
        (("--ce", "slack=3"), "do not belong to 'slack': add a limit for them, default=N"),
        (("--cs", 0), "cs must be at least 1"),
        (("--cs", "many"), "'--cs'"),
        (("--speedup", 0), "speedup must be a positive number"),
        (("--speedup", -1), "speedup must be a positive number"),
        (("--speedup", "nan"), "speedup must be a positive number"),
        (("--speedup", "inf"), "speedup must be a positive number"),
        (("--band-s", 0), "band_s must be a positive number"),
        (("--bucket-s", "nan"), "bucket_s must be a positive number"),
        (("--preset", "tpu"), "unknown preset 'tpu'; known: h20"),
        (("--schedule-policy", "magic"), "unknown schedule policy 'magic'; known: fcfs"),
        (("--env-policy", "magic"), "'--env-policy'"),
        (("--kv-tokens", 0), "kv_tokens must be"),
        (("--orders", 0), "--orders takes a whole number of at least 1, not 0"),
        (("--limit", 0), "--limit takes a whole number of at least 1, not 0"),
        (("--env-cap-s", -1), "env_cap_s must be 0 or more"),
        (("--alpha", 0.9), "alpha must be a number of at least 1, not 0.9"),
        (("--routing", "sticky"), "'lbch', 'consistent-hash', 'random'"),
        (("--user-cap-s", "nan"), "user_cap_s must be 0 or more"),
        (("--no-such-option",), "agentbatch replay --help"),
    ],
)
def test_replay_refuses_options_that_cannot_be(run: Any, trace: Path, arguments: tuple[object, ...], said: str) -> None:
    record = trace.with_name("run.jsonl")
    assert said in run("replay", trace, *EMULATED, *arguments, "--record", record, "--json").complaint
    assert os.listdir(trace.parent) == [trace.name]


def test_replay_needs_one_thing_to_replay_against(run: Any, trace: Path) -> None:
    nowhere = ("--url", "http://127.0.0.1:9/v1")
    for arguments in ((), (*nowhere, *EMULATED)):
        assert "either --url URL (once per worker) or --emulate N" in run("replay", trace, *arguments).complaint
    assert "at least 1, not 0" in run("replay", trace, "--emulate", 0).complaint
    assert "1 to 64" in run("replay", trace, "--emulate", 65).complaint
    sizes = run("replay", trace, *nowhere, "--kv-tokens", 9000, "--schedule-policy", "fcfs").complaint
    assert sizes.startswith("--schedule-policy, --kv-tokens shapes emulated workers: use it with --emulate")
    assert "http://" in run("replay", trace, "--url", "localhost:30000/v1").complaint
    assert "twice" in run("replay", trace, *nowhere, "--url", "http://127.0.0.1:9/v1/").complaint


def test_replay_says_so_where_nobody_listens(run: Any, trace: Path) -> None:
    record = trace.with_name("run.jsonl")
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}/v1"
        complaint = run("replay", trace, "--url", url, "--record", record).complaint
    assert f"cannot reach {url}" in complaint
    assert "is the server running" in complaint
    assert not record.exists()


def test_replay_refuses_a_record_before_anything_runs(run: Any, trace: Path) -> None:
    for name, said in (
        (trace, "the file exists, and a record is never overwritten"),
        (trace.parent, "it is a folder"),
        (trace.parent / "none" / "run.jsonl", "there is no folder"),
    ):
        assert said in run("replay", trace, *EMULATED, "--record", name).complaint
    trace.with_name("run.2.jsonl").touch()
    orders = ("--orders", 3, "--record", trace.with_name("run.jsonl"))
    assert "run.2.jsonl: the file exists" in run("replay", trace, *EMULATED, *orders).complaint


BROKEN = [
    ("", "holds no trajectory"),
    ("{\n", "line 1: is not valid JSON"),
    ('{"id":"a","domain":"d","turns":[]}\n', "line 1, field turns: expected at least one entry"),
    (
        '{"id":"a","domain":"d","turns":[{"prompt_tokens":1,"output_tokens":1},{"prompt_tokens":-1,"output_tokens":1}]}\n',
        "line 1, field turns[1].prompt_tokens: ",
    ),
    (
        '{"about":"x"}\n\n{"id":"a","domain":"d","turns":[{"output_tokens":1}]}',
        "line 3, field turns[0].prompt_tokens: missing",
    ),
]


@pytest.mark.parametrize(("content", "said"), BROKEN)
def test_a_malformed_trace_is_refused_by_file_line_and_field(run: Any, tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(content)
    for command in (("replay", path, *EMULATED), ("demo", "--trace", path)):
        complaint = run(*command).complaint
        assert complaint.startswith(str(path))
        assert said in complaint


def test_files_that_are_none_or_another_kind_are_refused(run: Any, trace: Path) -> None:
    missing = trace.with_name("none.jsonl")
    for command in (("replay", missing, *EMULATED), ("summary", missing), ("demo", "--trace", missing)):
        assert run(*command).complaint == f"{missing} does not exist"
    for command in (("replay", trace.parent, *EMULATED), ("summary", trace.parent)):
        assert run(*command).complaint == f"{trace.parent} is a folder: name a .jsonl file in it"
    assert "this is a trace, not the record of a run" in run("summary", trace).complaint
    record = trace.with_name("record.jsonl")
    record.write_text('{"event":"run"}\n')
    assert "this is the record of a run, not a trace" in run("demo", "--trace", record).complaint
    assert run("replay", record, *EMULATED).complaint == f"{record}, line 1, field run: missing"
    empty = trace.with_name("empty.jsonl")
    empty.touch()
    assert "no run was recorded in it" in run("summary", empty).complaint


def test_demo_refuses_a_speedup_that_cannot_be(run: Any) -> None:
    assert "speedup must be a positive number" in run("demo", "--speedup", 0).complaint


def test_typers_own_refusals_look_like_all_others(run: Any, trace: Path) -> None:
    assert run("nothing").complaint == "No such command 'nothing'; see agentbatch --help"
    assert run("replay").complaint.endswith("; see agentbatch replay --help")
    assert run("summary", trace, "more").complaint.endswith("; see agentbatch summary --help")
    bare = run()
    assert (bare.status, bare.err) == (2, "")
    assert "agentbatch demo" in bare.out


def test_limits_by_name() -> None:
    assert parse_limits("3") == {"default": 3}
    assert parse_limits(" default = 3 , bash=2") == {"default": 3, "bash": 2}
    assert parse_limits("5,a=b=1") == {"default": 5, "a=b": 1}  # the last = parts name and number
    for wrong in ("3,default=2", "9" * 5000, "1e3", "²", "bash=2=", ","):
        with pytest.raises(UsageError):
            parse_limits(wrong)
