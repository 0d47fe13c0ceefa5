"""Environment jobs: order, nesting, counting, and slots that are always given back."""

from typing import Any

import anyio
import anyio.lowlevel
import pytest

import agentbatch
from agentbatch import AgentBatch, SlotConflict, TrajectoryClosed, UsageError
from agentbatch.events import Event, JobEnded, Notice
from agentbatch.testing import virtual_clock

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


def grants(events: list[Event], key: Any = lambda job: job.label.rpartition("-")[2]) -> list[Any]:
    jobs = [event for event in events if isinstance(event, JobEnded) and event.granted_s is not None]
    return [key(job) for job in sorted(jobs, key=lambda job: job.granted_s)]


@BACKENDS
@pytest.mark.parametrize(("policy", "expected"), [("caas", ["hold", "deep", "cheap", "dear", "late"]),
                                                  ("fcfs", ["hold", "dear", "cheap", "deep", "late"])])
def test_grants_follow_the_policy(backend: str, policy: Any, expected: list[str]) -> None:
    """Eq. 13-16 by hand: bands first, then depth, then mean turn, then entry."""
    # name: (completed turns, mean turn in seconds, asks at)
    jobs = {
        "hold": (1, 1.0, 0.0), "dear": (1, 5.0, 6.0), "cheap": (1, 2.0, 7.0), "deep": (4, 9.0, 8.0),
        "late": (9, 1.0, 31.0),
    }  # fmt: skip
    events: list[Event] = []

    async def main() -> None:
        async with AgentBatch(cs=9, ce=1, env_policy=policy, on_event=events.append) as batch:

            async def solve(trajectory: Any, name: str) -> None:
                turns, mean, asks_s = jobs[name]
                for _ in range(turns):
                    trajectory.progress = trajectory.progress.completed(mean)
                await anyio.sleep(asks_s)
                async with trajectory.environment():
                    await anyio.sleep(40.0 if name == "hold" else 1.0)

            results = await batch.map(solve, jobs, key=str)
            assert all(result.ok for result in results)

    virtual_clock.run(main, backend=backend)
    assert grants(events) == expected


@BACKENDS
def test_resources_have_queues_of_their_own(backend: str) -> None:
    """litellm#31641, atlassian-mcp#171: one server's quota must not hold up the others."""
    peaks = {"slack": 0, "default": 0}
    now = {"slack": 0, "default": 0}

    async def main() -> float:
        async with AgentBatch(cs=20, ce={"default": 8, "slack": 1}) as batch:

            async def solve(trajectory: Any, n: int) -> None:
                name = "slack" if n % 2 else "default"
                async with trajectory.environment(name):
                    now[name] += 1
                    peaks[name] = max(peaks[name], now[name])
                    await anyio.sleep(1)
                    now[name] -= 1

            await batch.map(solve, range(16))
            return batch.clock.now()

    assert virtual_clock.run(main, backend=backend) == pytest.approx(8.0)
    assert peaks == {"slack": 1, "default": 8}


@BACKENDS
def test_a_nested_job_of_the_same_resource_joins(backend: str) -> None:
    """k8s_sandbox#126, inspect_ai#2405, ha-mcp#2369: a job spawning a job at CE = 1 must not wait for itself."""
    events: list[Event] = []

    async def main() -> None:
        async with AgentBatch(cs=2, ce=1, on_event=events.append) as batch, batch.trajectory("t") as trajectory:
            with anyio.fail_after(1):
                async with trajectory.environment():
                    await trajectory.act(anyio.sleep, 0.1)
                    async with anyio.create_task_group() as group:
                        group.start_soon(trajectory.act, anyio.sleep, 0.1)
                        group.start_soon(trajectory.act, anyio.sleep, 0.1)
                    assert batch.statistics().environment["default"].held == 1
            assert batch.statistics().environment["default"].held == 0

    virtual_clock.run(main, backend=backend)
    [job] = [event for event in events if isinstance(event, JobEnded)]
    assert job.operations == 4


@BACKENDS
def test_another_resource_inside_a_job_is_an_error_at_once(backend: str) -> None:
    async def main() -> None:
        async with AgentBatch(cs=2, ce={"default": 1, "slack": 1}) as batch, batch.trajectory("t") as trajectory:
            async with trajectory.environment():
                with pytest.raises(SlotConflict, match="leave the first block"):
                    await trajectory.act(anyio.sleep, 0, resource="slack")
            assert await trajectory.act(lambda: 7, resource="slack") == 7

    # a worker thread runs the lambda: real loops, no virtual time
    anyio.run(main, backend=backend)


@BACKENDS
def test_a_task_that_outlives_its_block_keeps_the_slot_then_queues_anew(backend: str) -> None:
    log: list[Any] = []

    async def main() -> None:
        async with AgentBatch(cs=2, ce=1) as batch, batch.trajectory("t") as trajectory:
            gauge = lambda: batch.statistics().environment["default"].held  # noqa: E731

            async def background() -> None:
                async with trajectory.environment():  # joins
                    await anyio.sleep(2)
                log.append(("joined ended", gauge()))
                async with trajectory.environment():  # anew
                    log.append(("anew", gauge()))

            async with anyio.create_task_group() as group:
                async with trajectory.environment():
                    group.start_soon(background)
                    await anyio.sleep(1)
                log.append(("block left", gauge()))

    virtual_clock.run(main, backend=backend)
    assert log == [("block left", 1), ("joined ended", 0), ("anew", 1)]


@BACKENDS
def test_cancelled_at_any_moment_nothing_is_held_afterwards(backend: str) -> None:
    async def main(steps: int) -> bool:
        async with AgentBatch(cs=2, ce=1) as batch:
            finished = False

            async def solve(trajectory: Any, n: int) -> None:
                nonlocal finished
                for _ in range(2):
                    async with trajectory.environment():
                        await anyio.lowlevel.checkpoint()
                finished = n == 3

            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as group:
                    group.start_soon(batch.map, solve, range(4))
                    for _ in range(steps):
                        await anyio.lowlevel.checkpoint()
                    scope.cancel()
            statistics = batch.statistics()
            gates = [statistics.admission, *statistics.environment.values()]
            assert all((gate.held, gate.waiting) == (0, 0) for gate in gates)
            results = await batch.map(solve, range(4))  # and the right number can still enter
            assert all(result.ok for result in results)
            return finished

    for steps in range(60):
        virtual_clock.run(main, steps, backend=backend)


@BACKENDS
def test_misuse_is_told(backend: str) -> None:
    async def main() -> None:
        async with AgentBatch(cs=1, ce=1) as batch:
            async with batch.trajectory("t") as trajectory:
                with pytest.raises(UsageError, match=r"'nope'.*'default'"):
                    trajectory.environment("nope")
                block = trajectory.environment()
                async with block:
                    pass
                with pytest.raises(SlotConflict, match="anew"):
                    await block.__aenter__()
            with pytest.raises(TrajectoryClosed, match="'t' is not running"):
                await trajectory.act(anyio.sleep, 0)

    virtual_clock.run(main, backend=backend)


def test_outside_a_trajectory_everything_passes_through_and_is_counted() -> None:
    async def tool(x: int) -> int:
        async with agentbatch.environment():
            return x + 1

    async def main() -> None:
        async with AgentBatch(cs=1, ce=1) as batch:

            async def solve(trajectory: Any, x: int) -> int:
                assert agentbatch.current_trajectory() is trajectory
                return await tool(x)

            [result] = await batch.map(solve, [1])
            assert result.ok
            assert result.value == 2
            assert agentbatch.current_trajectory() is None
            assert await tool(5) == 6  # an evaluator, say
            assert await agentbatch.act(tool, 5) == 6
            statistics = batch.statistics()
            assert (statistics.passed_through, statistics.jobs_completed) == (3, 1)
        assert await tool(1) == 2  # and without any batch

    anyio.run(main)


def test_more_sync_tools_run_at_once_than_anyios_forty_threads() -> None:
    import threading

    together = threading.Barrier(60, timeout=20)

    async def main() -> None:
        async with AgentBatch(cs=60, ce=60) as batch:
            results = await batch.map(lambda trajectory, _: trajectory.act(together.wait), range(60))
            assert sorted(result.value for result in results if result.ok) == list(range(60))

    anyio.run(main)


@BACKENDS
def test_a_thread_keeps_its_slot_until_it_really_ends(backend: str) -> None:
    import threading

    started, release = threading.Event(), threading.Event()

    def stubborn() -> None:
        started.set()
        assert release.wait(20)

    async def main() -> None:
        async with AgentBatch(cs=2, ce=1, on_event=events.append) as batch:

            async def solve(trajectory: Any, _: int) -> None:
                await trajectory.act(stubborn)

            async with anyio.create_task_group() as group:
                group.start_soon(batch.map, solve, [0])
                await anyio.to_thread.run_sync(started.wait)
                group.cancel_scope.cancel()
            assert batch.statistics().environment["default"].held == 1, "its caller has gone, the thread has not"
            assert batch.statistics().admission.held == 0
            async with batch.trajectory("next") as trajectory:
                with anyio.move_on_after(0.05):
                    await trajectory.act(anyio.lowlevel.checkpoint)
                    raise AssertionError("a second job ran beside the thread")
                release.set()
                await trajectory.act(anyio.lowlevel.checkpoint)
            assert batch.statistics().environment["default"].held == 0

    events: list[Event] = []
    anyio.run(main, backend=backend)
    first = next(event for event in events if isinstance(event, JobEnded) and event.label.endswith("-0"))
    assert (first.outcome, first.timed_out) == ("overrun", False)
    assert [event.kind for event in events if isinstance(event, Notice)] == ["overrun", "overrun"]


def test_the_next_job_begins_before_the_leaving_task_goes_on() -> None:
    """A slot handed on must not idle while whoever left builds its next request.

    On asyncio; trio runs both in the same tick, in an order that it draws.
    """
    log: list[str] = []

    async def main() -> None:
        async with AgentBatch(cs=2, ce=1) as batch:

            async def solve(trajectory: Any, name: str) -> None:
                async with trajectory.environment():
                    log.append(f"{name} began")
                    await anyio.sleep(1)
                log.append(f"{name} goes on")

            await batch.map(solve, ["a", "b"])

    virtual_clock.run(main)
    first, second = (line[0] for line in log if line.endswith("began"))
    assert log == [f"{first} began", f"{second} began", f"{first} goes on", f"{second} goes on"]
