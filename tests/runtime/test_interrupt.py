"""Ctrl-C: the first drains, the second stops; both leave a complete record. In processes of their own."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agentbatch.events import Notice, RunEnded, TrajectoryEnded
from agentbatch.trace import read_run, summarize

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="SIGINT is sent by kill")

PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where a shell had switched it off
from pathlib import Path
import anyio
from agentbatch import AgentBatch

backend, record, options = sys.argv[1], sys.argv[2], eval(sys.argv[3])

async def solve(trajectory, n):
    async with trajectory.environment():
        Path(f"{record}.{n}").touch()
        while not Path(f"{record}.go").exists():
            await anyio.sleep(0.01)
    return n

async def main():
    async with AgentBatch(cs=2, ce=2, record=record, **options) as batch:
        results = await batch.map(solve, range(6))
        print([type(result.error).__name__ if not result.ok else result.value for result in results], flush=True)
    print("after", signal.getsignal(signal.SIGINT) is not None, flush=True)

anyio.run(main, backend=backend)
print("end", signal.getsignal(signal.SIGINT) is signal.default_int_handler, flush=True)
"""


SYNC_PROGRAM = """
import signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from pathlib import Path
from concurrent.futures import ThreadPoolExecutor
from agentbatch import SyncAgentBatch

how, record, options = sys.argv[1], sys.argv[2], eval(sys.argv[3])

def solve(trajectory, n):
    while not Path(f"{record}.go").exists():
        with trajectory.environment():
            Path(f"{record}.{n}").touch()
            time.sleep(0.01)
    return n

def own(n):
    try:
        with batch.trajectory(n) as trajectory:
            return solve(trajectory, n)
    except Exception as error:
        return type(error).__name__

with SyncAgentBatch(cs=2, ce=2, record=record, **options) as batch:
    if how == "map":
        results = batch.map(solve, range(6))
        print([type(result.error).__name__ if not result.ok else result.value for result in results], flush=True)
    else:
        with ThreadPoolExecutor(6) as pool:
            ends = []
            for n in range(6):  # one after the other, so that they ask in order
                ends.append(pool.submit(own, n))
                while sum((batch.statistics().admission.held, batch.statistics().admission.waiting)) <= n:
                    time.sleep(0.001)
            Path(f"{record}.all").touch()
            print([end.result() for end in ends], flush=True)
print("after", threading.active_count() == 1, flush=True)
print("end", signal.getsignal(signal.SIGINT) is signal.default_int_handler, flush=True)
"""

PROGRAMS = [("asyncio", PROGRAM), ("trio", PROGRAM), ("map", SYNC_PROGRAM), ("pool", SYNC_PROGRAM)]


class Program:
    """A program above, once its first two trajectories run."""

    def __init__(self, folder: Path, how: str, source: str, options: str = "{}") -> None:
        self.record = folder / "run.jsonl"
        command = [sys.executable, "-c", source, how, str(self.record), options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        marks = ["0", "1", *(["all"] if how == "pool" else [])]
        self.wait_for(lambda: all(Path(f"{self.record}.{mark}").exists() for mark in marks))

    def wait_for(self, holds: Callable[[], bool]) -> None:
        patience = time.monotonic() + 30
        while not holds():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < patience
            time.sleep(0.01)

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def said(self, text: str) -> bool:
        return self.record.exists() and text in self.record.read_text()

    def go(self) -> None:
        Path(f"{self.record}.go").touch()

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out, err


@pytest.mark.parametrize(("how", "source"), PROGRAMS)
def test_the_first_drains_and_the_program_goes_on(how: str, source: str, tmp_path: Path) -> None:
    program = Program(tmp_path, how, source)
    program.interrupt()
    program.wait_for(lambda: program.said('"kind":"draining"'))
    program.go()
    status, out, err = program.end()
    assert status == 0, err
    assert out.splitlines() == [str([0, 1, *["BatchDrained"] * 4]), "after True", "end True"]
    file = read_run(program.record)
    assert isinstance(file.events[-1], RunEnded)
    kinds = [event.kind for event in file.events if isinstance(event, Notice)]
    assert kinds == ["interrupted", "draining"]
    summary = summarize(file)
    assert (summary.completed, summary.cancelled, summary.unfinished) == (2, 4, 0)


@pytest.mark.parametrize(("how", "source"), PROGRAMS)
def test_the_second_stops_as_ever_and_the_record_is_complete(how: str, source: str, tmp_path: Path) -> None:
    program = Program(tmp_path, how, source)
    program.interrupt()
    program.wait_for(lambda: program.said('"kind":"draining"'))
    program.interrupt()
    status, out, err = program.end()
    assert status != 0
    assert "KeyboardInterrupt" in err
    assert "end" not in out
    file = read_run(program.record)
    assert isinstance(file.events[-1], RunEnded)
    assert file.events[-1].outcome == "cancelled"
    ended = [event.outcome for event in file.events if isinstance(event, TrajectoryEnded)]
    assert ended == ["cancelled"] * 6
    assert summarize(file).unfinished == 0


@pytest.mark.parametrize(("how", "source"), [("asyncio", PROGRAM), ("map", SYNC_PROGRAM)])
def test_without_it_the_first_stops(how: str, source: str, tmp_path: Path) -> None:
    program = Program(tmp_path, how, source, "{'drain_on_interrupt': False}")
    program.interrupt()
    status, _, err = program.end()
    assert status != 0
    assert "KeyboardInterrupt" in err
    assert isinstance(read_run(program.record).events[-1], RunEnded)


def test_a_handler_of_somebody_elses_is_left_alone() -> None:
    script = """
import signal, anyio
from agentbatch import AgentBatch
mine = lambda number, frame: None
signal.signal(signal.SIGINT, mine)
async def main():
    async with AgentBatch(cs=1, ce=1):
        assert signal.getsignal(signal.SIGINT) is mine
    assert signal.getsignal(signal.SIGINT) is mine
anyio.run(main)
signal.signal(signal.SIGINT, signal.default_int_handler)
async def nested():
    before = signal.getsignal(signal.SIGINT)
    async with AgentBatch(cs=1, ce=1) as outer, AgentBatch(cs=1, ce=1) as inner:
        signal.raise_signal(signal.SIGINT)
        await anyio.sleep(0.05)
        assert {notice.kind for batch in (outer, inner) for notice in batch.hub.notices} == {"interrupted", "draining"}
        assert all(len(batch.hub.notices) == 2 for batch in (outer, inner))
    assert signal.getsignal(signal.SIGINT) == before
anyio.run(nested)
async def one_ends_before_the_other():
    before = signal.getsignal(signal.SIGINT)
    first = AgentBatch(cs=1, ce=1)
    async def earlier(begun, *, task_status):
        async with first:
            task_status.started()
            await begun.wait()
    begun = anyio.Event()
    async with anyio.create_task_group() as group:
        await group.start(earlier, begun)
        async with AgentBatch(cs=1, ce=1) as second:
            begun.set()
            await anyio.wait_all_tasks_blocked()
            signal.raise_signal(signal.SIGINT)
            await anyio.sleep(0.05)
            assert (len(first.hub.notices), len(second.hub.notices)) == (0, 2)
    assert signal.getsignal(signal.SIGINT) == before
for backend in ("asyncio", "trio"):
    anyio.run(one_ends_before_the_other, backend=backend)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
