"""Environment jobs of threads: queue, limit and joining rules of the async side; what is current in a thread."""

import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from runtime_helpers import ASK, jobs, turns
from sync_helpers import assert_nothing_held, served, wait_until

from agentbatch import (
    AgentBatch,
    EnvironmentTimeout,
    SlotConflict,
    SyncAgentBatch,
    SyncTrajectory,
    TrajectoryClosed,
    UsageError,
    act_sync,
    current_trajectory,
    environment_sync,
)
from agentbatch.events import Event


@pytest.mark.anyio
async def test_ce_jobs_run_and_no_more() -> None:
    running = peak = 0
    lock = threading.Lock()
    gathered = threading.Barrier(3)

    def solve(trajectory: SyncTrajectory, task: int) -> None:
        nonlocal running, peak
        with trajectory.environment():
            with lock:
                running += 1
                peak = max(peak, running)
            gathered.wait(30)  # 30 jobs in threes
            with lock:
                running -= 1

    async with AgentBatch(cs=30, ce=3) as batch:
        assert all(result.ok for result in await batch.map_sync(solve, range(30)))
        statistics = batch.statistics()
        assert (peak, statistics.jobs_completed) == (3, 30)
        assert (statistics.environment["default"].held, statistics.environment["default"].waiting) == (0, 0)


def test_waiting_jobs_are_granted_in_caas_order() -> None:
    order: list[str] = []
    ready = threading.Event()

    def solve(trajectory: SyncTrajectory, task: str) -> None:
        calls = {"deep": 2, "shallow": 1, "holder": 0}[task]
        for _ in range(calls):
            trajectory.client.chat.completions.create(**ASK)
        if task == "holder":
            with trajectory.environment():
                ready.set()
                wait_until(lambda: batch.statistics().environment["default"].waiting == 2)
            return
        ready.wait(30)
        if task == "deep":
            wait_until(lambda: batch.statistics().environment["default"].waiting == 1)
        with trajectory.environment():
            order.append(task)

    with served() as server, SyncAgentBatch(cs=3, ce=1, base_url=server.url) as batch:
        results = batch.map(solve, ["holder", "shallow", "deep"])
        assert all(result.ok for result in results)
    assert order == ["deep", "shallow"]  # though shallow asked first


def test_nested_blocks_join_and_other_resources_conflict() -> None:
    events: list[Event] = []
    with SyncAgentBatch(cs=1, ce={"default": 1, "web": 1}, on_event=events.append) as batch:
        with batch.trajectory("k") as trajectory:
            with trajectory.environment() as outer:
                with trajectory.environment():
                    assert trajectory.act(lambda: outer.holds_slot)
                assert outer.holds_slot
                with pytest.raises(SlotConflict, match="web"):
                    trajectory.environment("web").__enter__()
            block = trajectory.environment("web")
            with block:
                pass
            with pytest.raises(SlotConflict, match="twice"):
                block.__enter__()
            with pytest.raises(UsageError, match="no environment resource"):
                trajectory.environment("slack")
            assert trajectory.usage.environment_jobs == 2
        assert_nothing_held(batch)
    assert [(job.resource, job.operations) for job in jobs(events)] == [("default", 3), ("web", 1)]
    assert {job.outcome for job in jobs(events)} == {"ok"}


@pytest.mark.anyio
async def test_act_runs_plain_functions_here_and_coroutine_functions_on_the_loop() -> None:
    loop_thread = threading.get_ident()

    async def on_loop(x: int) -> tuple[int, int]:
        await anyio.lowlevel.checkpoint()
        return x, threading.get_ident()

    def solve(trajectory: SyncTrajectory, task: int) -> list[Any]:
        here = threading.get_ident()
        assert trajectory.act(threading.get_ident) == here
        with trajectory.environment():  # which the coroutine function joins
            assert trajectory.act(on_loop, 4) == (4, loop_thread)
        with pytest.raises(ZeroDivisionError):
            trajectory.act(divmod, 1, 0)
        return [trajectory.act(on_loop, task), trajectory.act(lambda: on_loop(task))]

    events: list[Event] = []
    async with AgentBatch(cs=1, ce=1, on_event=events.append) as batch:
        [result] = await batch.map_sync(solve, [7])
        assert result.ok, result
        assert result.value == [(7, loop_thread)] * 2
        assert result.usage.environment_jobs == 5
    assert [job.outcome for job in jobs(events)] == ["ok", "ok", "failed", "ok", "ok"]


def test_a_block_that_is_out_of_time_keeps_its_slot_and_then_says_so() -> None:
    events: list[Event] = []
    with (
        SyncAgentBatch(cs=1, ce=1, environment_timeout_s=0.001, on_event=events.append) as batch,
        batch.trajectory("k") as trajectory,
    ):
        with pytest.raises(EnvironmentTimeout), trajectory.environment():
            threading.Event().wait(0.005)  # a time-out is the one thing that needs time
        with pytest.raises(EnvironmentTimeout):
            trajectory.act(anyio.sleep, 30)
        with trajectory.environment(timeout_s=30):
            pass
        assert trajectory.usage.timeouts == 2
    assert [job.outcome for job in jobs(events)] == ["overrun", "failed", "ok"]
    assert [job.timed_out for job in jobs(events)] == [True, True, False]


def test_a_joined_block_may_have_a_time_out_of_its_own() -> None:
    with SyncAgentBatch(cs=1, ce=1) as batch, batch.trajectory("k") as trajectory:
        with trajectory.environment(timeout_s=30):
            with pytest.raises(EnvironmentTimeout), trajectory.environment(timeout_s=0.001):
                threading.Event().wait(0.005)
            with trajectory.environment(timeout_s=30):
                pass
        assert trajectory.usage.timeouts == 1
        assert batch.statistics().environment["default"].held == 0


def test_a_model_call_inside_a_job_is_counted() -> None:
    events: list[Event] = []
    with served() as server, SyncAgentBatch(cs=1, ce=1, base_url=server.url, on_event=events.append) as batch:
        with batch.trajectory("k") as trajectory, trajectory.environment():
            trajectory.client.chat.completions.create(**ASK)
        assert batch.statistics().inference_in_environment == 1
    assert [turn.in_environment for turn in turns(events)] == [True]


# -- what is current in a thread ------------------------------------------------------------------------------------


def test_functions_that_are_not_handed_their_trajectory_are_gated_under_it() -> None:
    with SyncAgentBatch(cs=1, ce=1) as batch:

        def solve(trajectory: SyncTrajectory, task: int) -> None:
            with environment_sync():
                assert act_sync(lambda: batch.statistics().environment["default"].held) == 1

        assert batch.map(solve, [1])[0].ok
        with batch.trajectory("k"):
            act_sync(len, "abc")
        assert (batch.statistics().jobs_completed, batch.statistics().passed_through) == (2, 0)


def test_outside_any_trajectory_they_pass_through_and_are_counted() -> None:
    with SyncAgentBatch(cs=1, ce=1) as batch:
        with environment_sync():
            assert act_sync(len, "abc") == 3
        assert act_sync(wait_and_return, 5) == 5
        with batch.trajectory("k"):
            pass
        assert act_sync(len, "abc") == 3
        statistics = batch.statistics()
        assert (statistics.jobs_completed, statistics.passed_through, statistics.notices) == (0, 4, 0)
    with environment_sync():  # nobody counts where no batch runs
        pass
    assert batch.statistics().passed_through == 4


async def wait_and_return(value: int) -> int:
    await anyio.lowlevel.checkpoint()
    return value


def test_a_thread_without_context_passes_through_with_a_notice_that_names_the_fix() -> None:
    seen: list[Event] = []

    def tool() -> Any:
        with environment_sync():
            return current_trajectory()

    with SyncAgentBatch(cs=1, ce=1, on_event=seen.append) as batch, batch.trajectory("k") as trajectory:
        with ThreadPoolExecutor(1) as pool:  # a bare pool carries no context variables
            assert pool.submit(tool).result() is None
            assert pool.submit(tool).result() is None
            assert pool.submit(trajectory.bind(tool)).result() is trajectory.trajectory
            assert pool.submit(tool).result() is None  # bound for the one call only
        statistics = batch.statistics()
        assert (statistics.passed_through, statistics.jobs_completed, statistics.notices) == (3, 1, 1)
        [notice] = [event for event in seen if event.event == "notice"]
        assert notice.kind == "no-trajectory-in-thread"
        assert "traj.bind(" in notice.message


def test_bind_carries_the_job_as_well() -> None:
    with SyncAgentBatch(cs=1, ce=1) as batch, batch.trajectory("k") as trajectory, ThreadPoolExecutor(2) as pool:
        with trajectory.environment():
            inside = trajectory.bind(lambda: act_sync(len, "ab"))
            assert [pool.submit(inside).result(), pool.submit(inside).result()] == [2, 2]  # joins, and does not wait
        assert pool.submit(inside).result() == 2  # the job has ended: a new one
        assert trajectory.usage.environment_jobs == 2


def test_bare_threads_use_a_trajectory_that_they_are_handed() -> None:
    with served() as server, SyncAgentBatch(cs=1, ce=2, base_url=server.url, run="r") as batch:
        with batch.trajectory("k") as trajectory:

            def work() -> None:
                trajectory.client.chat.completions.create(**ASK)
                with trajectory.environment():
                    pass

            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert (trajectory.usage.turns, trajectory.usage.environment_jobs) == (4, 4)
        assert server.labels == ["r-k"] * 4
        with pytest.raises(TrajectoryClosed, match="not running"):
            trajectory.client.chat.completions.create(**ASK)
        with pytest.raises(TrajectoryClosed, match="not running"):
            trajectory.environment().__enter__()


@pytest.mark.anyio
async def test_async_code_hands_its_trajectory_to_threads() -> None:
    async with AgentBatch(cs=1, ce=1, run="r") as batch, batch.trajectory("k") as trajectory:
        sync = trajectory.sync
        assert (sync.key, sync.label, sync.is_open) == ("k", "r-k", True)

        def work() -> str:
            with sync.environment():
                return sync.child("judge").label

        assert await anyio.to_thread.run_sync(work) == "r-k/judge"
        assert sync.usage == trajectory.usage
        assert sync.timing().environment_s == trajectory.timing().environment_s
        async with trajectory.environment():  # a worker thread of anyio carries the context, the job too
            assert await anyio.to_thread.run_sync(act_sync, len, "abc") == 3
        assert trajectory.usage.environment_jobs == 2


def test_a_coroutine_tool_sees_the_context_of_its_thread() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")

    async def tool() -> tuple[str, Any]:
        return variable.get(), current_trajectory()

    with SyncAgentBatch(cs=1, ce=1) as batch, batch.trajectory("k") as trajectory:
        variable.set("mine")
        assert trajectory.act(tool) == ("mine", trajectory.trajectory)
