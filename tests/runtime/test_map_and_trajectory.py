"""Admission, map and trajectory: order, results, isolation, misuse."""

import asyncio
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from agentbatch import (
    AgentBatch,
    BatchClosed,
    Completed,
    Failed,
    SlotConflict,
    StartUpError,
    TrajectoryCancelled,
    UsageError,
)
from agentbatch.events import Admitted, Event, RunEnded, RunStarted, TrajectoryEnded
from agentbatch.testing import virtual_clock
from agentbatch.trace.run import read_run

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


@BACKENDS
def test_admission_is_first_come_first_served_and_bounded(backend: str) -> None:
    events: list[Event] = []
    active = peak = 0

    async def solve(trajectory: Any, n: int) -> int:
        nonlocal active, peak
        active += 1
        peak = max(peak, active)
        await anyio.sleep(10 - n % 7)
        active -= 1
        return n * n

    async def main() -> list[Any]:
        async with AgentBatch(cs=3, ce=1, on_event=events.append) as batch:
            return await batch.map(solve, range(20))

    results = virtual_clock.run(main, backend=backend)
    assert [result.value for result in results] == [n * n for n in range(20)]
    assert peak == 3
    admitted_s = {event.key: event.at_s for event in events if isinstance(event, Admitted)}
    in_order = [admitted_s[str(n)] for n in range(20)]
    assert in_order == sorted(in_order)
    assert isinstance(events[0], RunStarted)
    assert isinstance(events[-1], RunEnded)


@BACKENDS
def test_results_stand_by_input_whatever_order_they_end_in(backend: str) -> None:
    """DeepSpec#29: out-of-order writes misaligned results."""

    async def main() -> list[Any]:
        async with AgentBatch(cs=50, ce=1) as batch:

            async def solve(trajectory: Any, n: int) -> str:
                await anyio.sleep((n * 7919) % 50)
                return trajectory.key

            return await batch.map(solve, range(50), key=lambda n: f"task-{n}")

    results = virtual_clock.run(main, backend=backend)
    assert [(result.key, result.value) for result in results] == [(f"task-{n}", f"task-{n}") for n in range(50)]


async def _fifty(batch: AgentBatch, spoil: Any) -> list[Any]:
    async def solve(trajectory: Any, n: int) -> int:
        await anyio.sleep(1 + n % 3)
        if n == 25:
            await spoil(trajectory)
        await anyio.sleep(1)
        return n

    return await batch.map(solve, range(50))


def _only_25_failed(results: list[Any]) -> Failed:
    assert [result.key for result in results if not result.ok] == ["25"]
    assert [result.value for result in results if result.ok] == [n for n in range(50) if n != 25]
    return results[25]


@BACKENDS
def test_cancelling_one_trajectory_leaves_the_others(backend: str) -> None:
    """indexable#2104: one cancel cancelled others."""

    async def spoil(trajectory: Any) -> None:
        trajectory.cancel("enough")

    async def main() -> list[Any]:
        async with AgentBatch(cs=10, ce=1) as batch:
            return await _fifty(batch, spoil)

    failed = _only_25_failed(virtual_clock.run(main, backend=backend))
    assert isinstance(failed.error, TrajectoryCancelled)
    assert str(failed.error) == "enough"


def test_a_stray_asyncio_cancellation_stays_in_its_trajectory() -> None:
    """indexable#2104, from asyncio: the task cancelled directly, or a CancelledError raised by the harness."""

    async def cancel_task(trajectory: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await anyio.lowlevel.checkpoint()

    async def raise_it(trajectory: Any) -> None:
        raise asyncio.CancelledError

    for spoil in (cancel_task, raise_it):

        async def main(spoil: Any = spoil) -> list[Any]:
            async with AgentBatch(cs=10, ce=1) as batch:
                return await _fifty(batch, spoil)

        failed = _only_25_failed(virtual_clock.run(main))
        assert isinstance(failed.error, asyncio.CancelledError)


@BACKENDS
def test_an_outer_cancellation_propagates_and_frees_everything(backend: str) -> None:
    events: list[Event] = []

    async def main() -> None:
        async with AgentBatch(cs=2, ce=1, on_event=events.append) as batch:
            with anyio.move_on_after(5) as scope:
                await batch.map(lambda trajectory, _: anyio.sleep(100), range(5))
            assert scope.cancelled_caught
            assert (batch.statistics().admission.held, batch.statistics().admission.waiting) == (0, 0)

    virtual_clock.run(main, backend=backend)
    ended = [event for event in events if isinstance(event, TrajectoryEnded)]
    assert [event.outcome for event in ended] == ["cancelled"] * 5
    assert sum(event.admitted_s is None for event in ended) == 3


@BACKENDS
def test_what_a_task_raises_is_its_result(backend: str) -> None:
    async def solve(trajectory: Any, n: int) -> int:
        return 1 // n

    async def main() -> list[Any]:
        async with AgentBatch(cs=2, ce=1) as batch:
            return await batch.map(solve, [1, 0, 1])

    good, bad, _ = virtual_clock.run(main, backend=backend)
    assert isinstance(good, Completed)
    assert isinstance(bad, Failed)
    assert isinstance(bad.error, ZeroDivisionError)
    assert bad.error.__traceback__ is not None


def test_a_keyboard_interrupt_is_no_result() -> None:
    async def solve(trajectory: Any, n: int) -> None:
        await anyio.sleep(0.01)  # until every task has begun: anyio warns of those that never do
        if n == 1:
            raise KeyboardInterrupt
        await anyio.sleep(100)

    async def main() -> None:
        async with AgentBatch(cs=3, ce=1) as batch:
            await batch.map(solve, range(3))

    with pytest.raises((KeyboardInterrupt, BaseExceptionGroup)):
        anyio.run(main)


@BACKENDS
def test_a_trajectory_block_passes_on_what_it_raises(backend: str) -> None:
    async def main() -> None:
        async with AgentBatch(cs=1, ce=1) as batch:
            with pytest.raises(KeyError):
                async with batch.trajectory(7):
                    raise KeyError("mine")
            assert batch.statistics().admission.held == 0
            async with batch.trajectory(7) as again:
                assert again.label.endswith("-7~2")
                with pytest.raises(SlotConflict, match="inside trajectory '7'"):
                    await batch.map(lambda trajectory, _: anyio.lowlevel.checkpoint(), [1])

    virtual_clock.run(main, backend=backend)


def test_duplicate_keys_and_closed_batches_are_refused_before_any_task_runs() -> None:
    ran = []

    async def solve(trajectory: Any, n: int) -> None:
        ran.append(n)

    async def main() -> None:
        batch = AgentBatch(cs=1, ce=1)
        with pytest.raises(BatchClosed, match="async with"):
            await batch.map(solve, [1])
        async with batch:
            with pytest.raises(UsageError, match="'1' stands twice"):
                await batch.map(solve, [1, 2, 1], key=str)
            assert await batch.map(solve, []) == []
            with pytest.raises(UsageError, match="base_url"):
                async with batch.trajectory("x") as trajectory:
                    trajectory.client  # noqa: B018
        with pytest.raises(BatchClosed, match="has ended"):
            await batch.map(solve, [1])
        with pytest.raises(BatchClosed, match="twice"):
            await batch.__aenter__()

    anyio.run(main)
    assert ran == []


def test_a_record_is_written_while_the_batch_runs_and_never_overwrites(tmp_path: Any) -> None:
    path = tmp_path / "run.jsonl"

    async def main() -> None:
        async with AgentBatch(cs=2, ce=1, record=path) as batch:
            await batch.map(lambda trajectory, _: trajectory.act(anyio.sleep, 0), range(3))
            assert len(path.read_text().splitlines()) == 10  # before the batch has ended

    anyio.run(main)
    run = read_run(path)
    assert run.torn is None
    assert isinstance(run.events[-1], RunEnded)
    with pytest.raises(StartUpError, match="exists"):
        anyio.run(main)


@pytest.mark.anyio
async def test_cancelled_from_outside_map_raises_nothing_else_though_clean_ups_fail() -> None:
    """trio puts cancellations and errors into one group."""

    async def fail_in_the_end() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise ValueError("mine")

    async def solve(trajectory: Any, _: int) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(fail_in_the_end)
            group.start_soon(anyio.sleep_forever)

    async with AgentBatch(cs=2, ce=1) as batch:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(batch.map, solve, range(3))
                await anyio.wait_all_tasks_blocked()
                scope.cancel()
        assert scope.cancelled_caught
        assert batch.statistics().admission.held == 0
