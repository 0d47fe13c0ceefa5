"""Emulated workers in processes of their own: `spawn` and `agentbatch emulate`."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest

from agentbatch.emulator import serve, spawn
from agentbatch.errors import StartUpError, UsageError

ROOT = Path(__file__).parents[2]
ENV = {**os.environ, "PYTHONPATH": str(ROOT)}
EMULATE = [sys.executable, "-m", "agentbatch", "emulate"]


def post(url: str, body: dict[str, Any], token: str | None = None) -> Any:
    headers = {"content-type": "application/json", **({"authorization": f"Bearer {token}"} if token else {})}
    request = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def hello(url: str, token: str | None = None) -> str:
    body = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 40}
    return str(post(url, body, token)["choices"][0]["message"]["content"])


def command(*arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([*EMULATE, *arguments], env=ENV, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def refused(*arguments: str) -> str:
    done = subprocess.run([*EMULATE, *arguments], env=ENV, text=True, capture_output=True,
                          check=False, timeout=30)
    assert done.returncode == 2
    assert done.stdout == ""
    return done.stderr


def test_spawn_serves_the_same_replies_in_a_child_that_ends_with_the_block() -> None:
    with spawn(workers=2, speedup=5000) as first:
        assert len(first.urls) == 2
        assert first.pid is not None
        child = psutil.Process(first.pid)
        replies = {hello(url) for url in first.urls}
    assert not child.is_running()
    assert len(replies) == 1  # whichever worker answers
    assert first.pid is None


@pytest.mark.anyio
async def test_spawn_under_asyncio_and_trio() -> None:
    async with spawn(workers=1, speedup=5000) as emulator:
        assert await anyio.to_thread.run_sync(hello, emulator.urls[0])
        with pytest.raises(UsageError, match="runs already"):
            emulator._start()


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_serve_on_trio_says_what_to_use() -> None:
    with pytest.raises(UsageError, match="use spawn"):
        async with serve():
            raise AssertionError("unreachable")


def test_spawn_tells_of_a_port_in_use() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(StartUpError, match="choose another base port"):
            spawn(workers=1, base_port=taken.getsockname()[1]).__enter__()


def test_spawn_tells_of_a_bad_script(tmp_path: Path) -> None:
    script = tmp_path / "script.jsonl"
    script.write_text('{"reply": {"text": "hi"}}\n{"when": 5}\n')
    with pytest.raises(UsageError, match=r"script\.jsonl:2"):
        spawn(workers=1, script=script).__enter__()
    with pytest.raises(UsageError, match="workers"):
        spawn(workers=0)


def test_spawn_tells_what_a_child_that_dies_said(monkeypatch: Any, tmp_path: Path) -> None:
    (tmp_path / "uvicorn.py").write_text("raise ImportError('uvicorn is broken here')")
    broken = {**ENV, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    monkeypatch.setattr("agentbatch.emulator.child._environment", lambda: broken)
    with pytest.raises(StartUpError, match="uvicorn is broken here"):
        spawn(workers=1).__enter__()


def test_the_child_ends_when_its_parent_is_killed() -> None:
    program = ("from agentbatch.emulator import spawn\nimport time\n"
               "with spawn(workers=1) as e:\n    print(e.pid, flush=True)\n    time.sleep(600)\n")
    with subprocess.Popen([sys.executable, "-c", program], env=ENV, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    psutil.wait_procs([child], timeout=20)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_serves_until_a_signal_and_exits_0(number: signal.Signals) -> None:
    with command("--workers", "2", "--base-port", "0", "--speedup", "5000", "--json") as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert len(ready["urls"]) == 2
        assert hello(ready["urls"][1])
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (0, "", "")


def test_the_command_prints_urls_for_people_and_runs_a_script(tmp_path: Path) -> None:
    script = tmp_path / "script.jsonl"
    script.write_text('{"when": "hello", "reply": {"text": "scripted"}}\n')
    arguments = ("--workers", "1", "--base-port", "0", "--speedup", "5000", "--script", str(script), "--host",
                 "0.0.0.0", "--token", "t")
    with command(*arguments) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert "Ctrl-C stops" in process.stdout.readline()
        local = url.replace("0.0.0.0", "127.0.0.1")
        assert hello(local, "t") == "scripted"
        with pytest.raises(urllib.error.HTTPError, match="401") as caught:
            hello(local)
        caught.value.close()
        process.terminate()
        process.communicate(timeout=20)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--preset", "h100"), "unknown preset 'h100'; known: h20-tp4-ling-3.0-flash"),
        (("--schedule-policy", "hrrn"), "unknown schedule policy 'hrrn'"),
        (("--kv-tokens", "0"), "kv_tokens must be at least 4"),
        (("--host", "0.0.0.0"), "give a token"),
        (("--script", "/nowhere.jsonl"), "cannot read the script"),
    ],
)
def test_the_command_refuses_in_one_line_with_status_2(arguments: tuple[str, ...], said: str) -> None:
    complaint = refused(*arguments)
    assert said in complaint
    assert complaint.count("\n") == 1


def test_the_command_tells_of_a_port_in_use() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        complaint = refused("--base-port", str(taken.getsockname()[1]), "--workers", "1")
    assert "choose another base port" in complaint
    assert complaint.count("\n") == 1
