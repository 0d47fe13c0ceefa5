"""Admission slots: kept through every wait, given back however a trajectory ends, on both event loops."""

import asyncio
import random
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from runtime_helpers import assert_nothing_held, jobs

from agentbatch import AgentBatch, TrajectoryCancelled
from agentbatch.events import Event, JobEnded, TrajectoryEnded
from agentbatch.testing import virtual_clock

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


class Odd(BaseException):
    """What no `except Exception` sees."""


@BACKENDS
def test_the_slot_is_kept_while_waiting_for_the_environment_and_for_anything_else(backend: str) -> None:
    async def main() -> None:
        async with AgentBatch(cs=2, ce=1) as batch:
            gauges: list[tuple[float, int, int]] = []

            async def solve(trajectory: Any, n: int) -> None:
                await anyio.sleep(1)  # as a model call would
                async with trajectory.environment():
                    await anyio.sleep(5)
                await anyio.sleep(1)

            async with anyio.create_task_group() as group:
                group.start_soon(batch.map, solve, range(3))
                for _ in range(8):
                    await anyio.sleep(1.7)
                    statistics = batch.statistics()
                    gauges.append((statistics.now_s, statistics.admission.held, statistics.admission.waiting))
            # 0 is active from 0 to 7 s, 1 from 0 to 12 s, 2 from 7 to 17 s
            expected = [(2, 1) if at < 7 else (2, 0) if at < 12 else (1, 0) for at, _, _ in gauges]
            assert [(held, waiting) for _, held, waiting in gauges] == expected
            assert_nothing_held(batch)

    virtual_clock.run(main, backend=backend)


@BACKENDS
@pytest.mark.parametrize("end", ["return", "raise", "cancel itself", "outer scope", "odd"])
@pytest.mark.parametrize("where", ["free", "holding", "waiting"])
def test_given_back_however_and_wherever_the_block_ends(backend: str, end: str, where: str) -> None:
    events: list[Event] = []

    async def body(batch: AgentBatch) -> None:
        async with batch.trajectory("t") as trajectory, anyio.create_task_group() as group:

            async def finish() -> None:
                await anyio.sleep(2)
                if end == "raise":
                    raise ValueError("mine")
                if end == "odd":
                    raise Odd
                if end == "cancel itself":
                    trajectory.cancel("enough")

            group.start_soon(finish)
            if where == "free":
                await anyio.sleep(3)
            else:
                async with trajectory.environment():
                    await anyio.sleep(3)

    async def main() -> None:
        async with AgentBatch(cs=2, ce=1, on_event=events.append) as batch:

            async def holder() -> None:
                async with batch.trajectory("holder") as trajectory, trajectory.environment():
                    await anyio.sleep(10 if where == "waiting" else 0)

            raised: BaseException | None = None
            async with anyio.create_task_group() as group:
                group.start_soon(holder)
                await anyio.sleep(0.5)
                try:
                    with anyio.move_on_after(2 if end == "outer scope" else 99):
                        await body(batch)
                except BaseException as error:
                    raised = error
                own = [event for event in events if isinstance(event, TrajectoryEnded) and event.key == "t"]
                assert [event.outcome for event in own] == [
                    {"return": "ok", "raise": "failed", "odd": "cancelled"}.get(end, "cancelled")
                ]
                gate = batch.statistics().environment["default"]
                assert (gate.held, gate.waiting) == (int(where == "waiting" and end != "return"), 0)
            assert_nothing_held(batch)
            if end == "cancel itself":
                assert isinstance(raised, TrajectoryCancelled)
            elif end in ("raise", "odd"):
                assert isinstance(raised, BaseExceptionGroup)
            else:
                assert raised is None
            async with batch.trajectory("t") as again:  # the same key may run again
                assert again.label.endswith("-t~2")

    virtual_clock.run(main, backend=backend)
    if where != "free":
        ended = [job for job in jobs(events) if job.label.endswith("-t")]
        assert [job.granted_s is None for job in ended] == [where == "waiting" and end != "return"]


async def _cancel_one_after(batch: AgentBatch, steps: int, how: str) -> list[Any]:
    """Run 6 trajectories and cancel the third after so many steps of the scheduler."""
    target: dict[str, Any] = {}
    ended = anyio.Event()

    async def solve(trajectory: Any, n: int) -> int:
        if n == 2:
            target["trajectory"], target["task"] = trajectory, how == "task" and asyncio.current_task()
        try:
            for _ in range(2):
                async with trajectory.environment():
                    await anyio.lowlevel.checkpoint()
                await trajectory.act(anyio.lowlevel.checkpoint)
            return n
        finally:
            if n == 2:
                ended.set()

    async def cancel() -> None:
        while "trajectory" not in target:
            await anyio.lowlevel.checkpoint()
        for _ in range(steps):
            await anyio.lowlevel.checkpoint()
        if not ended.is_set():
            target["task"].cancel() if how == "task" else target["trajectory"].cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(cancel)
        return await batch.map(solve, range(6))


@BACKENDS
@pytest.mark.parametrize("how", ["trajectory", "task"])
def test_one_trajectory_cancelled_at_any_step_costs_no_other_anything(backend: str, how: str) -> None:
    """indexable#2104, python/cpython#90155: at every await point in turn."""
    if how == "task" and backend == "trio":
        how = "trajectory"  # trio has no such thing as cancelling a task; the seeds below differ all the same

    async def main(steps: int) -> bool:
        async with AgentBatch(cs=3, ce=1) as batch:
            results = await _cancel_one_after(batch, steps, how)
            assert [result.value for n, result in enumerate(results) if n != 2] == [0, 1, 3, 4, 5]
            assert_nothing_held(batch)
            again = await batch.map(lambda trajectory, n: trajectory.act(anyio.lowlevel.checkpoint), range(4))
            assert all(result.ok for result in again)
            return bool(results[2].ok)

    unharmed = [virtual_clock.run(main, steps, backend=backend) for steps in range(50)]
    assert not all(unharmed)
    assert unharmed[-1], "fifty steps must be enough to reach the end"


@BACKENDS
def test_random_cancels_in_a_crowd_break_no_count(backend: str) -> None:
    """python/cpython#90155: 1,000 random cancels, then exactly CE enter; every job that began is counted once."""
    events: list[Event] = []

    async def main() -> None:
        source = random.Random(7)
        async with AgentBatch(cs=40, ce=3, on_event=events.append) as batch:
            running = peak = began = 0

            async def solve(trajectory: Any, n: int) -> int:
                nonlocal running, peak, began
                for _ in range(3):
                    with anyio.move_on_after(source.uniform(0.1, 6)):
                        async with trajectory.environment():
                            began += 1
                            running += 1
                            peak = max(peak, running)
                            try:
                                await anyio.sleep(source.uniform(0, 1))
                            finally:
                                running -= 1
                    if source.random() < 0.1:
                        trajectory.cancel()
                return n

            results = await batch.map(solve, range(350))
            assert [result.value for n, result in enumerate(results) if result.ok] == [
                n for n, result in enumerate(results) if result.ok
            ]
            assert peak == 3
            assert_nothing_held(batch)
            assert batch.statistics().jobs_completed == began
            assert sum(result.usage.environment_jobs for result in results) == began
            assert sum(job.granted_s is not None for job in jobs(events)) == began < len(jobs(events))

            inside: list[int] = []

            async def enter(trajectory: Any, n: int) -> None:
                async with trajectory.environment():
                    inside.append(n)
                    await anyio.sleep(100)

            with anyio.move_on_after(50):
                await batch.map(enter, range(10))
            assert len(inside) == 3  # trio starts tasks of one instant in any order
            assert not [notice for notice in batch.hub.notices if notice.kind == "overrun"]
            assert_nothing_held(batch)

    virtual_clock.run(main, backend=backend)


def test_asyncios_own_time_outs_and_cancellations_free_everything() -> None:
    async def main() -> None:
        async with AgentBatch(cs=2, ce=1) as batch:

            async def solve(trajectory: Any, n: int) -> None:
                async with trajectory.environment():
                    await asyncio.sleep(10)

            with pytest.raises(TimeoutError):
                async with asyncio.timeout(5):
                    await batch.map(solve, range(5))
            assert_nothing_held(batch)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(batch.map(solve, range(5)), 5)
            assert_nothing_held(batch)
            task = asyncio.create_task(batch.map(solve, range(5)))
            await asyncio.sleep(5)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert_nothing_held(batch)

            async def impatient(trajectory: Any, n: int) -> str:
                try:
                    async with asyncio.timeout(3):
                        await solve(trajectory, n)
                except TimeoutError:
                    return "timed out"
                return "done"

            results = await batch.map(impatient, range(5))
            assert [result.ok and result.value for result in results] == ["timed out"] * 5

    virtual_clock.run(main)


@BACKENDS
def test_a_job_cancelled_in_the_tick_of_its_grant_never_ran_and_hands_the_slot_on(backend: str) -> None:
    """agronholm/anyio#1145, at a job: it is no completed job, and its trajectory has none left over."""
    events: list[Event] = []

    async def main() -> None:
        release, head = anyio.Event(), anyio.CancelScope()

        def listen(event: Event) -> None:
            events.append(event)
            if isinstance(event, JobEnded) and event.label.endswith("-first"):
                head.cancel()  # the slot is reserved for the head by now, and the head has not woken

        async with AgentBatch(cs=3, ce=1, on_event=listen) as batch:
            ran: list[str] = []

            async def first(trajectory: Any) -> None:
                async with trajectory.environment():
                    await release.wait()

            async def second(trajectory: Any) -> None:
                with head:
                    async with trajectory.environment():
                        ran.append("second")

            async def third(trajectory: Any) -> None:
                async with trajectory.environment():
                    ran.append("third")

            async def run(solve: Any) -> None:
                async with batch.trajectory(solve.__name__) as trajectory:
                    await solve(trajectory)

            async with anyio.create_task_group() as group:
                for solve in (first, second, third):
                    group.start_soon(run, solve)
                    await anyio.wait_all_tasks_blocked()
                release.set()
            assert ran == ["third"]
            assert batch.statistics().jobs_completed == 2
            assert not batch.hub.notices
            assert_nothing_held(batch)

    virtual_clock.run(main, backend=backend)
    ended = {job.label.rpartition("-")[2]: (job.outcome, job.granted_s is None) for job in jobs(events)}
    assert ended == {"first": ("ok", False), "second": ("cancelled", True), "third": ("ok", False)}
