"""`run_process`: a command and its whole group, under one slot, however it ends."""

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import psutil
import pytest
from runtime_helpers import jobs

from agentbatch import AgentBatch, EnvironmentTimeout, UsageError
from agentbatch.events import Event, Notice

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="process groups are POSIX"),
]
STUBBORN = "trap '' TERM; sleep 60 & wait; wait"
"""Deaf to SIGTERM, and so is its child."""


def alive(marker: str) -> list[psutil.Process]:
    """Processes whose command line holds `marker`."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        command = process.info["cmdline"] or []
        if any(marker in part for part in command) and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


async def test_status_output_input_folder_and_environment(tmp_path: Path) -> None:
    events: list[Event] = []
    async with AgentBatch(cs=1, ce=1, on_event=events.append) as batch, batch.trajectory("t") as trajectory:
        done = await trajectory.run_process(
            "cat; echo $WHO in $PWD; echo oops >&2; exit 3", stdin=b"hello\n", cwd=tmp_path, env={"WHO": "me"}
        )
        assert (done.returncode, done.stderr) == (3, b"oops\n")
        assert done.stdout.decode() == f"hello\nme in {tmp_path}\n"
        big = await trajectory.run_process([sys.executable, "-c", "print('x' * 3_000_000)"], stdin=b"y" * 1_000_000)
        assert len(big.stdout) == 3_000_001
        with pytest.raises(FileNotFoundError):
            await trajectory.run_process(["no-such-command-anywhere"])
        assert batch.statistics().environment["default"].held == 0
    assert [(job.outcome, job.operations) for job in jobs(events)] == [("ok", 1), ("ok", 1), ("failed", 1)]


@pytest.mark.parametrize("how", ["time-out", "cancel"])
async def test_a_group_is_ended_with_the_processes_it_started(how: str, tmp_path: Path) -> None:
    marker = f"sleep 61.{time.monotonic_ns()}"
    command = f"{marker} & {marker} & echo > {tmp_path}/up; wait"
    events: list[Event] = []
    async with AgentBatch(cs=1, ce=1, on_event=events.append) as batch, batch.trajectory("t") as trajectory:
        with anyio.CancelScope() as scope:

            async def cancel_when_up() -> None:
                while not (tmp_path / "up").exists():  # noqa: ASYNC110 - another process writes it
                    await anyio.sleep(0.01)
                if how == "cancel":
                    scope.cancel()

            async with anyio.create_task_group() as group:
                group.start_soon(cancel_when_up)
                if how == "cancel":
                    await trajectory.run_process(command)
                else:
                    with pytest.raises(EnvironmentTimeout):
                        await trajectory.run_process(command, timeout_s=2.0)
        assert not alive(marker)
        assert batch.statistics().environment["default"].held == 0
    assert [(job.outcome, job.timed_out) for job in jobs(events)] == [
        ("failed", True) if how == "time-out" else ("cancelled", False)
    ]
    assert not [event for event in events if isinstance(event, Notice)]


async def test_a_group_that_ignores_sigterm_is_killed_and_is_an_overrun() -> None:
    """miles#1012: nothing may hold a slot for hours because it does not care for signals."""
    marker = f"unused = {time.monotonic_ns()}"
    events: list[Event] = []
    async with AgentBatch(cs=2, ce=1, on_event=events.append) as batch, batch.trajectory("t") as trajectory:
        with pytest.raises(EnvironmentTimeout):
            await trajectory.run_process(f": {marker}; {STUBBORN}", timeout_s=1.0, grace_s=0.2)
        assert not alive(marker)
        assert batch.statistics().environment["default"].held == 0
        assert trajectory.usage.timeouts == 1
    assert [(job.outcome, job.timed_out) for job in jobs(events)] == [("overrun", True)]
    [notice] = [event for event in events if isinstance(event, Notice)]
    assert (notice.kind, "ignored SIGTERM for 0.2 s" in notice.message) == ("overrun", True)


async def test_the_slot_stays_taken_until_the_group_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that outlives even SIGKILL, as one stuck in the kernel does: its caller goes on, its slot does not."""
    from agentbatch.runtime import process

    stuck = True
    members = process._has_members
    monkeypatch.setattr(process, "KILLED_WITHIN_S", 0.05)
    monkeypatch.setattr(process, "_has_members", lambda one: stuck or members(one))
    events: list[Event] = []
    async with AgentBatch(cs=2, ce=1, on_event=events.append) as batch, batch.trajectory("t") as trajectory:
        with pytest.raises(EnvironmentTimeout):
            await trajectory.run_process("sleep 62", timeout_s=0.2, grace_s=0.05)
        assert batch.statistics().environment["default"].held == 1
        stuck = False
        await trajectory.act(anyio.lowlevel.checkpoint)  # gets the slot once the group has gone
    assert [job.outcome for job in jobs(events)] == ["overrun", "ok"]


def block_until_it_exists(path: Path, at_most_s: float) -> None:
    """Hold up the event loop, which gets behind what the command does."""
    patience = time.monotonic() + at_most_s
    while not path.exists() and time.monotonic() < patience:
        time.sleep(0.01)


@pytest.mark.parametrize("steps", range(1, 6))
@pytest.mark.parametrize("how", ["scope", "task"])
async def test_cancelled_while_it_starts_a_command_leaves_nothing_behind(
    steps: int, how: str, tmp_path: Path, anyio_backend_name: str
) -> None:
    """asyncio kills the leader alone then, and forgets the pipes that its children hold."""
    if how == "task" and anyio_backend_name == "trio":
        pytest.skip("trio's tasks have no cancel()")
    marker = f"sleep 61.{time.monotonic_ns()}"
    ended = anyio.Event()
    scope = anyio.CancelScope()
    async with AgentBatch(cs=1, ce=1) as batch, batch.trajectory("t") as trajectory:
        descriptors = psutil.Process().num_fds()

        async def run() -> None:
            try:
                with scope:
                    await trajectory.run_process(f"{marker} & touch {tmp_path}/up; wait", grace_s=1)
            finally:
                ended.set()

        async with anyio.create_task_group() as group:
            task = asyncio.create_task(run()) if how == "task" else None
            if task is None:
                group.start_soon(run)
            for _ in range(steps):
                await anyio.lowlevel.checkpoint()
            block_until_it_exists(tmp_path / "up", 0.3)
            (task or scope).cancel()
            await ended.wait()
        assert psutil.Process().num_fds() == descriptors
        assert batch.statistics().environment["default"].held == 0
    assert not alive(marker)


@pytest.mark.parametrize(
    "wrong",
    [{"stdin": "text"}, {"stdin": None}, {"grace_s": "5"}, {"grace_s": None}, {"grace_s": -1},
     {"grace_s": float("nan")}],
)  # fmt: skip
async def test_what_would_fail_half_way_is_refused_before_the_command_starts(wrong: Any, tmp_path: Path) -> None:
    """A grace that is no number was met when the command had to be stopped, and left it running."""
    async with AgentBatch(cs=1, ce=1) as batch, batch.trajectory("t") as trajectory:
        with pytest.raises(UsageError, match=next(iter(wrong))):
            await trajectory.run_process(f"touch {tmp_path}/ran", **wrong)
        assert batch.statistics().environment["default"].held == 0
    assert not await anyio.Path(tmp_path, "ran").exists()


async def test_cancelling_a_batch_of_commands_leaves_no_process(tmp_path: Path) -> None:
    marker = f"sleep 63.{time.monotonic_ns()}"

    async def solve(trajectory: Any, n: int) -> None:
        await trajectory.run_process(f"touch {tmp_path}/{n}; {marker} & {marker}; wait", grace_s=1.0)

    async with AgentBatch(cs=8, ce=4) as batch:
        async with anyio.create_task_group() as group:
            group.start_soon(batch.map, solve, range(8))
            while len(list(tmp_path.iterdir())) < 4:  # noqa: ASYNC110, ASYNC240 - other processes make them
                await anyio.sleep(0.01)
            assert alive(marker)
            group.cancel_scope.cancel()
        assert not alive(marker)
        assert batch.statistics().environment["default"].held == 0


async def test_what_a_command_said_before_its_time_was_up_is_kept() -> None:
    async with AgentBatch(cs=1, ce=1) as batch, batch.trajectory("t") as trajectory:
        with pytest.raises(EnvironmentTimeout) as late:
            await trajectory.run_process("echo half; echo oops >&2; sleep 60", timeout_s=1.0, grace_s=0.5)
        assert (late.value.stdout, late.value.stderr) == (b"half\n", b"oops\n")
