"""`map_sync` and `SyncAgentBatch`: plain step loops in threads, as many as CS, with the results that `map` gives."""

import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from runtime_helpers import ASK, turns, until
from sync_helpers import assert_nothing_held, served

from agentbatch import (
    AgentBatch,
    Completed,
    Failed,
    SyncAgentBatch,
    SyncTrajectory,
    TrajectoryCancelled,
    UsageError,
    current_trajectory,
)
from agentbatch.events import Admitted, Event, RunEnded, TrajectoryEnded
from agentbatch.testing import Answer


def double(trajectory: SyncTrajectory, task: int) -> int:
    assert current_trajectory() is trajectory.trajectory
    if task == 3:
        raise LookupError(f"no {task}")
    return 2 * task


def check(results: list[Any]) -> None:
    assert [type(result) for result in results] == [Completed, Completed, Failed, Completed]
    assert [result.key for result in results] == ["k1", "k2", "k3", "k4"]
    assert [result.value for result in results if result.ok] == [2, 4, 8]
    assert repr(results[2].error) == "LookupError('no 3')"
    assert "double" in [frame.name for frame in traceback.extract_tb(results[2].error.__traceback__)]


@pytest.mark.anyio
async def test_map_sync_gives_the_results_of_map() -> None:
    async with AgentBatch(cs=2, ce=1, run="r") as batch:
        check(await batch.map_sync(double, [1, 2, 3, 4], key=lambda task: f"k{task}"))
        with pytest.raises(UsageError, match="map"):
            await batch.map_sync(anyio.sleep, [1])
        with pytest.raises(UsageError, match="twice"):
            await batch.map_sync(double, [1, 1], key=str)


def test_a_program_without_event_loop_maps() -> None:
    with SyncAgentBatch(cs=2, ce=1, run="r") as batch:
        check(batch.map(double, [1, 2, 3, 4], key=lambda task: f"k{task}"))
        statistics = batch.statistics()
        assert (statistics.trajectories_completed, statistics.trajectories_failed) == (3, 1)
        assert (batch.options.cs, batch.options.run) == (2, "r")
        with pytest.raises(UsageError, match="map"):
            batch.map(anyio.sleep, [1])
    assert batch.statistics().trajectories_completed == 3  # told after the end, too


def test_three_hundred_threads_make_three_hundred_requests_at_once() -> None:
    gathered = threading.Barrier(300)

    def solve(trajectory: SyncTrajectory, task: int) -> int:
        with trajectory.client.chat.completions.create(**ASK, stream=True) as stream:
            next(stream)
            gathered.wait(50)  # every one of them is answered half-way by now
        return threading.get_ident()

    with served(lambda received: Answer(text="a b", stall_after=1)) as server:
        with SyncAgentBatch(cs=300, ce=1, base_url=server.url) as batch:
            threads = {result.value for result in batch.map(solve, range(300)) if result.ok}
            assert_nothing_held(batch)
        assert len(threads) == 300
        assert server.server.peak == 300


@pytest.mark.anyio
async def test_cs_threads_run_and_no_more() -> None:
    running = peak = 0
    lock = threading.Lock()

    def solve(trajectory: SyncTrajectory, task: int) -> None:
        nonlocal running, peak
        with lock:
            running += 1
            peak = max(peak, running)
        if task < 50:
            gathered.wait(30)
        with lock:
            running -= 1

    gathered = threading.Barrier(50)
    async with AgentBatch(cs=50, ce=1) as batch:
        await batch.map_sync(solve, range(120))
    assert peak == 50


def test_a_harness_with_a_thread_pool_of_its_own() -> None:
    events: list[Event] = []
    with served() as server, SyncAgentBatch(cs=3, ce=1, base_url=server.url, on_event=events.append) as batch:

        def process(instance: int) -> str:
            with batch.trajectory(instance) as trajectory:
                assert current_trajectory() is trajectory.trajectory
                trajectory.client.chat.completions.create(**ASK)
                with trajectory.environment():
                    pass
                return trajectory.label
            raise AssertionError

        with ThreadPoolExecutor(8) as pool:
            labels = list(pool.map(process, range(20)))
        assert_nothing_held(batch)
        assert sorted(server.labels) == sorted(labels)
        assert len(turns(events)) == batch.statistics().jobs_completed == 20
        held = peak = 0
        for event in events:
            held += isinstance(event, Admitted) - isinstance(event, TrajectoryEnded)
            peak = max(peak, held)
        assert (held, peak) == (0, 3)


def test_what_a_block_raises_leaves_it_as_it_is() -> None:
    events: list[Event] = []
    error = LookupError("mine")
    with pytest.raises(LookupError) as caught, SyncAgentBatch(cs=1, ce=1, on_event=events.append) as batch:  # noqa: SIM117
        with batch.trajectory("k"):
            raise error
    assert caught.value is error
    assert error.__context__ is None
    assert [frame.name for frame in caught.traceback] == ["test_what_a_block_raises_leaves_it_as_it_is"]
    assert [event.outcome for event in events if isinstance(event, TrajectoryEnded | RunEnded)] == ["failed", "failed"]


def test_a_key_may_run_once_at_a_time() -> None:
    with SyncAgentBatch(cs=2, ce=1, run="r") as batch:
        with batch.trajectory("k"), pytest.raises(UsageError, match="still runs"):
            in_thread(lambda: batch.trajectory("k").__enter__())
        with batch.trajectory("k") as again:
            assert again.label == "r-k~2"


def in_thread(function: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def test_a_function_that_exits_ends_only_its_own_thread() -> None:
    with SyncAgentBatch(cs=2, ce=1) as batch:
        left, stayed = batch.map(lambda trajectory, task: sys.exit(3) if task else "here", [1, 0])
    assert isinstance(left, Failed)
    assert "SystemExit(3)" in str(left.error)
    assert isinstance(left.error.__cause__, SystemExit)
    assert stayed.ok


def test_a_generators_block_may_be_left_in_another_thread() -> None:
    def harness() -> Iterator[SyncTrajectory]:
        with batch.trajectory("k") as trajectory, trajectory.environment():
            yield trajectory

    with SyncAgentBatch(cs=1, ce=1) as batch:
        steps = harness()
        assert in_thread(lambda: next(steps)).is_open
        steps.close()
        assert_nothing_held(batch)
        steps = harness()
        next(steps)
        in_thread(steps.close)
        assert_nothing_held(batch)


# -- cancelling ---------------------------------------------------------------------------------------------------


def test_a_cancelled_block_ends_with_its_reason() -> None:
    events: list[Event] = []
    with served() as server, SyncAgentBatch(cs=1, ce=1, base_url=server.url, on_event=events.append) as batch:
        with pytest.raises(TrajectoryCancelled, match="enough"), batch.trajectory("k") as trajectory:
            trajectory.cancel("enough")
            with pytest.raises(TrajectoryCancelled, match="enough"):
                trajectory.client.chat.completions.create(**ASK)
            with pytest.raises(TrajectoryCancelled, match="enough"):
                trajectory.environment().__enter__()
            assert batch.statistics().admission.held == 1  # until the block ends
        assert_nothing_held(batch)
        assert server.labels == []
    assert [event.outcome for event in events if isinstance(event, TrajectoryEnded)] == ["cancelled"]


@pytest.mark.anyio
async def test_cancelling_reaches_a_thread_in_the_environment_queue_at_once() -> None:
    victims: list[SyncTrajectory] = []
    holding, release = threading.Event(), threading.Event()

    def solve(trajectory: SyncTrajectory, task: str) -> None:
        if task == "victim":
            holding.wait(30)
            victims.append(trajectory)
        with trajectory.environment():
            assert task == "holder"
            holding.set()
            release.wait(30)

    results: list[Any] = []
    async with AgentBatch(cs=2, ce=1) as batch:

        async def run() -> None:
            results.extend(await batch.map_sync(solve, ["holder", "victim"]))

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await until(lambda: batch.statistics().environment["default"].waiting == 1)
            victims[0].cancel("enough")
            await until(lambda: batch.statistics().trajectories_failed == 1)
            release.set()  # only now: the victim did not wait for it
        assert results[0].ok
        assert str(results[1].error) == "enough"
        assert isinstance(results[1].error, TrajectoryCancelled)
        assert batch.statistics().jobs_completed == 1


@pytest.mark.anyio
async def test_a_cancelled_thread_keeps_its_admission_slot_until_it_ends() -> None:
    begun, go_on = threading.Event(), threading.Event()
    seen: list[BaseException] = []

    def solve(trajectory: SyncTrajectory, task: int) -> None:
        begun.set()
        go_on.wait(30)
        try:
            with trajectory.environment():
                pass
        except TrajectoryCancelled as error:
            seen.append(error)
            raise

    events: list[Event] = []
    async with AgentBatch(cs=1, ce=1, on_event=events.append) as batch:
        async with anyio.create_task_group() as group:
            group.start_soon(batch.map_sync, solve, [1, 2])
            await anyio.to_thread.run_sync(begun.wait)
            group.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
                assert batch.statistics().admission.held == 1
                go_on.set()
        assert batch.statistics().admission.held == 0
        assert len(seen) == 1  # the second was never admitted
    assert [event.outcome for event in events if isinstance(event, TrajectoryEnded)] == ["cancelled", "cancelled"]
