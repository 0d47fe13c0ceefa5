"""Time-outs: from the grant, never from the queue; whatever they end is marked."""

from typing import Any

import anyio
import anyio.lowlevel
import pytest
from runtime_helpers import assert_nothing_held, jobs

from agentbatch import (
    AgentBatch,
    EnvironmentTimeout,
    TimedOut,
    TrajectoryTimeout,
    UsageError,
)
from agentbatch.events import Event, TrajectoryEnded
from agentbatch.testing import virtual_clock
from agentbatch.trace import summarize

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


@BACKENDS
def test_a_queue_is_no_time_out(backend: str) -> None:
    """pixeltable#1062: the clock started in the queue. Ten times oversubscribed, 5 s limit, 1 s service."""
    events: list[Event] = []

    async def main() -> None:
        limits: dict[str, Any] = {"environment_timeout_s": 5.0, "trajectory_timeout_s": 25.0}
        async with AgentBatch(cs=20, ce=2, on_event=events.append, **limits) as batch:

            async def solve(trajectory: Any, _: int) -> None:
                for _ in range(2):
                    async with trajectory.environment():
                        await anyio.sleep(1)

            results = await batch.map(solve, range(200))
            assert all(result.ok and not result.timed_out for result in results)
            assert max(result.timing.environment_wait_s for result in results) > 15
            assert max(result.timing.admission_wait_s for result in results) > 100

    virtual_clock.run(main, backend=backend)
    assert not any(job.timed_out for job in jobs(events))
    assert summarize(events).timeouts == 0


@BACKENDS
def test_a_hung_environment_times_out_and_gives_its_slot_back(backend: str) -> None:
    """miles#1012: no time-out, so 11 of 32 slots were held for 7.5 h."""
    events: list[Event] = []

    async def main() -> None:
        async with AgentBatch(cs=4, ce=2, environment_timeout_s=30.0, on_event=events.append) as batch:

            async def solve(trajectory: Any, n: int) -> str:
                try:
                    async with trajectory.environment():
                        await (anyio.sleep_forever() if n < 2 else anyio.sleep(1))
                except EnvironmentTimeout as error:
                    if n == 0:
                        raise
                    return str(error)
                return "done"

            results = await batch.map(solve, range(4))
            assert [result.timed_out for result in results] == [True, True, False, False]
            assert [result.ok for result in results] == [False, True, True, True]
            assert "held a slot of 'default' for longer than 30 s" in results[1].value
            assert isinstance(results[0].error, TimedOut)
            assert_nothing_held(batch)

    virtual_clock.run(main, backend=backend)
    late = [job for job in jobs(events) if job.timed_out]
    assert [(job.outcome, job.ended_s - (job.granted_s or 0)) for job in late] == [("failed", pytest.approx(30.0))] * 2
    summary = summarize(events)
    assert (summary.timeouts, summary.timed_out_trajectories, summary.overruns) == (2, 2, 0)


@BACKENDS
def test_a_time_out_counts_from_the_grant_and_a_block_may_have_its_own(backend: str) -> None:
    async def main() -> None:
        limits = {"default": 10.0}
        async with AgentBatch(cs=9, ce={"default": 1, "web": 1}, environment_timeout_s=limits) as batch:
            ended: dict[str, float] = {}

            async def hold(name: str, seconds: float, **how: Any) -> None:
                async with batch.trajectory(name) as trajectory:
                    try:
                        await trajectory.act(anyio.sleep, seconds, **how)
                    except EnvironmentTimeout:
                        ended[name] = batch.clock.now()

            async with anyio.create_task_group() as group:
                group.start_soon(hold, "first", 99.0)  # 0 to 10
                await anyio.wait_all_tasks_blocked()
                group.start_soon(hold, "second", 99.0)  # 10 to 20
                await anyio.wait_all_tasks_blocked()
                group.start_soon(lambda: hold("own", 99.0, timeout_s=3.0))  # 20 to 23
                await anyio.wait_all_tasks_blocked()
                group.start_soon(lambda: hold("longer", 15.0, timeout_s=20.0))  # 23 to 38
                group.start_soon(lambda: hold("unlimited", 999.0, resource="web"))
            assert ended == {"first": pytest.approx(10), "second": pytest.approx(20), "own": pytest.approx(23)}
            async with batch.trajectory("wrong") as trajectory:
                for wrong in (0, -1, float("inf"), float("nan"), "3", True):
                    with pytest.raises(UsageError, match="timeout_s must be a positive number"):
                        trajectory.environment(timeout_s=wrong)

    virtual_clock.run(main, backend=backend)


@BACKENDS
def test_a_joined_block_shares_the_time_of_the_job_it_joined(backend: str) -> None:
    async def main() -> None:
        async with AgentBatch(cs=1, ce=1, environment_timeout_s=10.0) as batch, batch.trajectory("t") as trajectory:
            with pytest.raises(EnvironmentTimeout):
                async with trajectory.environment():
                    await anyio.sleep(6)
                    async with trajectory.environment():
                        await anyio.sleep(6)
                    raise AssertionError("came too far")
            assert batch.clock.now() == pytest.approx(10)
            assert batch.statistics().environment["default"].held == 0
            assert trajectory.usage.timeouts == 1

    virtual_clock.run(main, backend=backend)


@BACKENDS
def test_a_joined_block_may_have_a_time_out_of_its_own(backend: str) -> None:
    """Several tools under one slot, each with its limit: one that hangs must not take the others' time."""
    events: list[Event] = []

    async def main() -> None:
        options: dict[str, Any] = {"environment_timeout_s": 10.0, "on_event": events.append}
        async with AgentBatch(cs=1, ce=1, **options) as batch, batch.trajectory("t") as trajectory:
            async with trajectory.environment(timeout_s=30.0):
                await anyio.sleep(6)
                with pytest.raises(EnvironmentTimeout, match="longer than 2 s"):
                    await trajectory.act(anyio.sleep, 99, timeout_s=2.0)
                assert batch.clock.now() == pytest.approx(8)
                await trajectory.act(anyio.sleep, 12)  # not the resource's limit: that is the job's, which has its own
                assert batch.statistics().environment["default"].held == 1
            assert batch.clock.now() == pytest.approx(20)
            assert trajectory.usage.timeouts == 1
            assert batch.statistics().environment["default"].held == 0

    virtual_clock.run(main, backend=backend)
    [job] = jobs(events)
    assert (job.outcome, job.timed_out, job.operations) == ("failed", True, 3)


@BACKENDS
def test_a_block_that_swallows_its_cancellation_is_marked_all_the_same(backend: str) -> None:
    async def main() -> None:
        async with AgentBatch(cs=1, ce=1, environment_timeout_s=10.0) as batch, batch.trajectory("t") as trajectory:
            async with trajectory.environment():
                try:
                    await anyio.sleep_forever()
                except BaseException:
                    pass
            with pytest.raises(ValueError, match="mine"):
                async with trajectory.environment():
                    try:
                        await anyio.sleep_forever()
                    finally:
                        raise ValueError("mine")
            assert trajectory.usage.timeouts == 2

    virtual_clock.run(main, backend=backend)


@BACKENDS
def test_the_slot_comes_back_where_a_tools_clean_up_fails_beside_its_cancelled_siblings(backend: str) -> None:
    """trio's scopes take the cancellations out of a group and raise the rest, from within our own way out."""
    events: list[Event] = []

    async def fail_in_the_end() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise ValueError("mine")

    async def solve(trajectory: Any, _: int) -> None:
        async with trajectory.environment(), anyio.create_task_group() as group:
            group.start_soon(fail_in_the_end)
            group.start_soon(anyio.sleep_forever)

    async def main() -> None:
        async with AgentBatch(cs=2, ce=1, environment_timeout_s=5.0, on_event=events.append) as batch:
            for result in await batch.map(solve, range(2)):
                assert isinstance(result.error, ExceptionGroup)
                assert result.timed_out
            assert_nothing_held(batch)

    virtual_clock.run(main, backend=backend)
    assert [job.timed_out for job in jobs(events)] == [True, True]


@BACKENDS
def test_a_trajectory_times_out_from_its_admission(backend: str) -> None:
    events: list[Event] = []

    async def main() -> None:
        async with AgentBatch(cs=1, ce=1, trajectory_timeout_s=10.0, on_event=events.append) as batch:

            async def solve(trajectory: Any, n: int) -> None:
                async with trajectory.environment():
                    await anyio.sleep(8 + n)

            results = await batch.map(solve, [0, 1, 4])
            assert [result.ok for result in results] == [True, True, False]
            assert isinstance(results[2].error, TrajectoryTimeout)
            assert [result.timed_out for result in results] == [False, False, True]
            assert results[2].timing.active_s == pytest.approx(10)
            assert_nothing_held(batch)
            with pytest.raises(TrajectoryTimeout, match="trajectory_timeout_s=10 s"):
                async with batch.trajectory("own loop"):
                    await anyio.sleep(11)
            async with batch.trajectory("swallows") as trajectory:
                try:
                    await anyio.sleep(11)
                except BaseException:
                    pass
            assert trajectory.timed_out

    virtual_clock.run(main, backend=backend)
    ended = {event.key: (event.outcome, event.timed_out) for event in events if isinstance(event, TrajectoryEnded)}
    assert ended == {
        "0": ("ok", False), "1": ("ok", False), "2": ("failed", True), "own loop": ("failed", True),
        "swallows": ("ok", True),
    }  # fmt: skip
    assert summarize(events).timed_out_trajectories == 3


@pytest.mark.parametrize(
    ("option", "value", "named"),
    [("turn_timeout_s", 0, "turn_timeout_s"), ("trajectory_timeout_s", "9", "trajectory_timeout_s"),
     ("environment_timeout_s", -1.0, "environment_timeout_s"), ("environment_timeout_s", {"web": 3.0}, "'web'"),
     ("environment_timeout_s", {"default": float("nan")}, "'default'"), ("timeout_s", True, "timeout_s")],
)  # fmt: skip
def test_a_time_out_that_cannot_be_is_refused(option: str, value: Any, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        AgentBatch(cs=1, ce=1, **{option: value})
