"""A replay that is stopped: it ends in order, leaves no process behind, and what it recorded reads."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from agentbatch.events import RunEnded, TurnEnded
from agentbatch.trace import read_run

SAMPLE = Path(__file__).parents[2] / "examples" / "traces" / "sample.jsonl"

# Ctrl-C works here even where these tests were started in the background, which makes a shell switch it off.
PROGRAM = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from agentbatch.cli import main; main()"
)


def start(record: Path, *arguments: str) -> "subprocess.Popen[str]":
    """Start a replay that would take minutes, and return once it is in the middle."""
    command = [sys.executable, "-c", PROGRAM, "replay", str(SAMPLE), "--emulate", "2", "--speedup", "60"]
    process = subprocess.Popen(
        [*command, "--record", str(record), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while not (record.exists() and b'"event":"turn"' in record.read_bytes()):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    return process


def end(process: "subprocess.Popen[str]", number: int) -> tuple[str, str]:
    """Send a signal and return what was printed; no process of the replay is left."""
    family = psutil.Process(process.pid).children(recursive=True)
    assert family  # the emulator
    process.send_signal(number)
    printed = process.communicate(timeout=30)
    _, alive = psutil.wait_procs(family, timeout=30)
    assert alive == []
    return printed


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_replay_in_order(run: Any, tmp_path: Path, number: signal.Signals, status: int) -> None:
    record = tmp_path / "run.jsonl"
    process = start(record, "--orders", "3", "--json")
    out, err = end(process, number)
    assert (process.returncode, out) == (status, "")
    assert "Traceback" not in err
    path = f"{record}: agentbatch summary {record}"
    assert f"agentbatch: interrupted after 0 of 3 orders; what ran is in {path}" in err.splitlines()
    file = read_run(record)
    assert file.torn is None
    assert isinstance(file.events[-1], RunEnded)
    assert file.events[-1].outcome == "cancelled"
    figures = run("summary", record, "--json").figures
    assert figures["turns"] >= 1
    assert figures["completed"] < 166
    assert [path.name for path in tmp_path.iterdir()] == ["run.jsonl"]


def test_a_killed_replay_leaves_no_emulator_and_a_record_that_reads(run: Any, tmp_path: Path) -> None:
    record = tmp_path / "run.jsonl"
    process = start(record)
    end(process, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert any(isinstance(event, TurnEnded) for event in read_run(record).events)
    figures = run("summary", record, "--json").figures
    assert figures["unfinished"] > 0
    assert "unfinished" in run("summary", record).out


def test_ctrl_c_while_the_emulator_starts(tmp_path: Path) -> None:
    """Whenever it comes: no traceback, no process left, and status 130."""
    command = [sys.executable, "-c", PROGRAM, "demo"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not psutil.Process(process.pid).children():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    out, err = end(process, signal.SIGINT)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert err.splitlines()[-1] == "agentbatch: interrupted after 0 of 3 ways"


def test_orders_that_finished_before_ctrl_c_are_shown(
    run: Any, trace: Path, against: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentbatch.replay import orders

    replay, calls = orders.replay, []

    async def interrupted_at_the_third(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return await replay(*arguments, **options)

    monkeypatch.setattr(orders, "replay", interrupted_at_the_third)
    done = run("replay", trace, *against, "--orders", 4, "--json")
    assert (done.status, done.err) == (130, "agentbatch: interrupted after 2 of 4 orders\n")
    assert len(done.figures["orders"]) == 2


def test_ways_that_finished_before_ctrl_c_are_shown(run: Any, trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from agentbatch.cli import three_ways

    replay, calls = three_ways.replay, []

    async def interrupted_at_the_second(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        if len(calls) % 2 == 0:
            raise KeyboardInterrupt
        return await replay(*arguments, **options)

    monkeypatch.setattr(three_ways, "replay", interrupted_at_the_second)
    done = run("demo", "--trace", trace, "--speedup", 400)
    assert done.status == 130
    assert done.err.splitlines()[-1] == "agentbatch: interrupted after 1 of 3 ways"
    assert "unified 3" in done.out
    assert "CAAS ┃" not in done.out
    assert list(run("demo", "--trace", trace, "--speedup", 400, "--json").figures["ways"]) == ["unified"]


def test_sigterm_kills_where_ctrl_c_is_switched_off(trace: Path) -> None:
    """As under nohup: a SIGTERM turned into a Ctrl-C that nobody hears would do nothing."""
    program = PROGRAM.replace("signal.default_int_handler", "signal.SIG_IGN")
    slow = trace.with_name("slow.jsonl")
    turns = [{"prompt_tokens": 10, "output_tokens": 1, "env_s": 1e6}]
    slow.write_text(json.dumps({"id": "a", "domain": "d", "turns": turns}))
    command = [sys.executable, "-c", program, "replay", str(slow), "--emulate", "1", "--env-cap-s", "1e6"]
    process = subprocess.Popen([*command, "--speedup", "1"], stderr=subprocess.PIPE, text=True)
    while not psutil.Process(process.pid).children():
        assert process.poll() is None
        time.sleep(0.01)
    end(process, signal.SIGTERM)
    assert process.returncode == -signal.SIGTERM
