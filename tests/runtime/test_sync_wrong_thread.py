"""Used from where they cannot work, both sides say so: instead of a dead-lock, or of an error far away."""

import asyncio
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import anyio.to_thread
import pytest
from runtime_helpers import ASK
from sync_helpers import served, wait_until

from agentbatch import AgentBatch, BatchClosed, SyncAgentBatch, SyncTrajectory, WrongThread, environment_sync
from agentbatch.events import RunEnded, TrajectoryEnded


@pytest.mark.anyio
async def test_synchronous_parts_refuse_the_loops_own_thread() -> None:
    async with AgentBatch(cs=1, ce=1, base_url=None) as batch, batch.trajectory("k") as trajectory:
        uses: list[Any] = [
            lambda: trajectory.sync.client,
            lambda: trajectory.sync.environment().__enter__(),
            lambda: trajectory.sync.act(len, "abc"),
            lambda: environment_sync().__enter__(),
        ]
        for use in uses:
            with pytest.raises(WrongThread, match=r"async with traj\.environment"):
                use()
        assert trajectory.sync.usage.turns == 0  # figures do not wait
        assert trajectory.usage.environment_jobs == 0


@pytest.mark.anyio
async def test_asynchronous_parts_refuse_other_threads_and_loops() -> None:
    async with AgentBatch(cs=1, ce=1) as batch, batch.trajectory("k") as trajectory:

        async def enter() -> None:
            async with trajectory.environment():
                pass

        async def ask() -> None:
            await trajectory.client.chat.completions.create(**ASK)

        async def start() -> None:
            await batch.map(None, [])  # type: ignore[arg-type]

        for use in (enter, ask, start):
            for backend in ("asyncio", "trio"):
                with pytest.raises(WrongThread, match=r"in a thread use traj\.sync"):
                    await anyio.to_thread.run_sync(lambda use=use, backend=backend: anyio.run(use, backend=backend))
        with pytest.raises(WrongThread, match=r"in a thread use traj\.sync"):
            await anyio.to_thread.run_sync(lambda: trajectory.client)


@pytest.mark.asyncio
async def test_a_client_refuses_another_loop_in_the_same_thread() -> None:
    batch = AgentBatch(cs=1, ce=1)
    async with batch:
        batch.check_open()
        here, batch.crossing._loop = batch.crossing._loop, asyncio.new_event_loop()
        with pytest.raises(WrongThread):
            batch.check_open()
        batch.crossing._loop.close()
        batch.crossing._loop = here


def test_a_hook_of_a_sync_batch_runs_on_its_loop() -> None:
    errors: list[Exception] = []
    seen: list[int] = []

    def hook(event: Any) -> None:
        if event.event == "admitted":
            seen.append(batch.statistics().admission.held)  # figures may be asked for there
            try:
                batch.map(lambda trajectory, task: None, [1])
            except WrongThread as error:
                errors.append(error)

    with SyncAgentBatch(cs=1, ce=1, on_event=hook) as batch, batch.trajectory("k"):
        pass
    assert (seen, len(errors)) == ([1], 1)


def test_outside_its_with_block_a_batch_says_so() -> None:
    batch = SyncAgentBatch(cs=1, ce=1)
    for use in (lambda: batch.map(lambda trajectory, task: None, [1]), lambda: batch.trajectory("k").__enter__()):
        with pytest.raises(BatchClosed, match="inside `with"):
            use()
    with batch:
        pass
    for use in (lambda: batch.map(lambda trajectory, task: None, [1]), lambda: batch.trajectory("k").__enter__()):
        with pytest.raises(BatchClosed, match="ended"):
            use()
    with pytest.raises(BatchClosed, match="twice"):
        batch.__enter__()


def test_threads_that_outlive_their_batch_are_told() -> None:
    entered, closed = threading.Event(), threading.Event()
    errors: list[BaseException] = []
    events: list[Any] = []

    def work() -> None:
        try:
            with batch.trajectory("k") as trajectory:
                client = trajectory.client
                entered.set()
                closed.wait(30)
                uses = (lambda: client.chat.completions.create(**ASK), lambda: trajectory.environment().__enter__())
                for use in uses:
                    try:
                        use()
                    except Exception as error:
                        errors.append(error)
        except Exception as error:
            errors.append(error)

    def wait_for_admission() -> None:
        try:
            batch.trajectory("late").__enter__()
        except Exception as error:
            errors.append(error)

    with served() as server, ThreadPoolExecutor(2) as pool:
        with SyncAgentBatch(cs=1, ce=1, base_url=server.url, on_event=events.append) as batch:
            pool.submit(work)
            entered.wait(30)
            pool.submit(wait_for_admission)
            wait_until(lambda: batch.statistics().admission.waiting == 1)
        closed.set()
    kinds = [type(error) for error in errors]
    assert kinds.count(BatchClosed) == 3, errors
    assert all("inside the batch's `with` block" in str(error) for error in errors if isinstance(error, BatchClosed))
    assert [event.kind for event in events if event.event == "notice"] == ["closed-early"]
    assert [event.outcome for event in events if isinstance(event, TrajectoryEnded)] == ["cancelled", "cancelled"]
    assert isinstance(events[-1], RunEnded)


def test_a_trajectory_waits_for_nobody_after_its_end() -> None:
    waiting, release = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def wait(trajectory: SyncTrajectory) -> None:
        waiting.set()
        try:
            trajectory.environment().__enter__()
        except Exception as error:
            errors.append(error)

    def hold() -> None:
        with batch.trajectory("holder") as trajectory, trajectory.environment():
            holding.set()
            release.wait(30)

    holding = threading.Event()
    with SyncAgentBatch(cs=2, ce=1) as batch, ThreadPoolExecutor(2) as pool:
        pool.submit(hold)
        holding.wait(30)
        with batch.trajectory("k") as trajectory:
            left_behind = pool.submit(wait, trajectory)
            wait_until(lambda: batch.statistics().environment["default"].waiting == 1)
        left_behind.result(30)
        release.set()
    assert "not running" in str(errors[0])


FORK = """
import os
from agentbatch import BatchClosed, SyncAgentBatch, environment_sync

with SyncAgentBatch(cs=1, ce=1) as batch, batch.trajectory("k") as trajectory:
    child = os.fork()
    if not child:
        for use in (environment_sync, trajectory.environment):
            try:
                use().__enter__()
            except BatchClosed as error:
                assert "fork" in str(error)
            else:
                os._exit(1)
        assert batch.statistics().admission.held == 1  # what it was
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with trajectory.environment():
        pass
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_says_so_instead_of_waiting_for_ever() -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORK]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
