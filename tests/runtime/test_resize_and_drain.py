"""Limits that change while slots are held, and a batch that admits no more."""

from typing import Any

import anyio
import pytest
from runtime_helpers import assert_nothing_held

from agentbatch import AgentBatch, BatchClosed, BatchDrained, StartUpError, TrajectoryCancelled, UsageError
from agentbatch.events import Event, LimitsChanged, Notice, TrajectoryEnded
from agentbatch.runtime import transport
from agentbatch.testing import virtual_clock
from agentbatch.trace import summarize

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


async def hold(trajectory: Any, seconds: float) -> float:
    async with trajectory.environment():
        await anyio.sleep(seconds)
    return seconds


@BACKENDS
def test_shrinking_drains_and_growing_admits_at_once(backend: str) -> None:
    """dspace-python-client#6: a ramp-down dead-locked. CE 8 to 1 while 8 are held and 12 wait."""
    gauges: list[tuple[float, int, int]] = []

    async def main() -> None:
        async with AgentBatch(cs=20, ce=8) as batch:

            async def watch() -> None:
                await anyio.sleep(0.5)
                batch.resize(ce=1)
                for _ in range(6):
                    slots = batch.statistics().environment["default"]
                    assert slots.held >= 0
                    gauges.append((batch.clock.now(), slots.held, slots.waiting))
                    await anyio.sleep(1)
                batch.resize(ce=3)
                slots = batch.statistics().environment["default"]
                gauges.append((batch.clock.now(), slots.held, slots.waiting))

            async with anyio.create_task_group() as group:
                group.start_soon(watch)
                results = await batch.map(hold, [1.0] * 20)
            assert all(result.ok for result in results)
            assert_nothing_held(batch)

    virtual_clock.run(main, backend=backend)
    assert [(held, waiting) for _, held, waiting in gauges] == [
        (8, 12), (1, 11), (1, 10), (1, 9), (1, 8), (1, 7), (3, 4),
    ]  # fmt: skip


@BACKENDS
def test_cs_changes_both_ways_and_the_record_says_so(backend: str) -> None:
    events: list[Event] = []

    async def main() -> None:
        limits = {"default": 9, "web": 1}
        async with AgentBatch(cs=4, ce=limits, on_event=events.append) as batch:

            async def change() -> None:
                for cs, expected in ((2, 4), (6, 6), (1, 6)):
                    await anyio.sleep(0.1)
                    batch.resize(cs=cs)
                    assert batch.statistics().admission.held == expected
                batch.resize(ce={"web": 5})

            async with anyio.create_task_group() as group:
                group.start_soon(change)
                assert all(result.ok for result in await batch.map(hold, [1.0] * 12))
            assert_nothing_held(batch)

    virtual_clock.run(main, backend=backend)
    changed = [event for event in events if isinstance(event, LimitsChanged)]
    assert [(event.cs, event.ce["default"], event.ce["web"]) for event in changed] == [
        (2, 9, 1), (6, 9, 1), (1, 9, 1), (1, 9, 5),
    ]  # fmt: skip
    summary = summarize(events)
    assert summary.completed == 12
    assert summary.makespan_s == pytest.approx(7.0, abs=0.5)  # 6 at once, then one after the other


@BACKENDS
def test_limits_that_cannot_be_are_refused_and_change_nothing(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with AgentBatch(cs=4, ce=2, base_url=None) as batch:
            wrong: list[tuple[dict[str, Any], str]] = [
                ({}, "changes nothing"), ({"cs": 0}, "cs must be at least 1"), ({"ce": 1.5}, "whole number"),
                ({"ce": {"web": 2}}, "no environment resource 'web'"), ({"cs": 9, "ce": 0}, "at least 1"),
            ]  # fmt: skip
            for options, message in wrong:
                with pytest.raises(UsageError, match=message):
                    batch.resize(**options)
            statistics = batch.statistics()
            assert (statistics.admission.capacity, statistics.environment["default"].capacity) == (4, 2)
        with pytest.raises(BatchClosed):
            batch.resize(cs=1)
        async with AgentBatch(cs=4, ce=2, unified=True) as batch:
            with pytest.raises(UsageError, match="unified"):
                batch.resize(cs=1)

    virtual_clock.run(main, backend=backend)


def test_more_trajectories_than_descriptors_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """daiv#1368, in mid-batch."""

    async def main() -> None:
        batch = AgentBatch(cs=4, ce=2, base_url="http://127.0.0.1:9/v1")
        monkeypatch.setattr("agentbatch.runtime.clients.check_reachable", _nothing)
        async with batch:
            with pytest.raises(StartUpError, match="RLIMIT_NOFILE"):
                batch.resize(cs=10**9)
            assert batch.statistics().admission.capacity == 4

    anyio.run(main)
    assert transport.RESERVED_DESCRIPTORS


async def _nothing(*arguments: Any) -> None:
    pass


@BACKENDS
def test_draining_admits_no_more_and_lets_the_rest_finish(backend: str) -> None:
    events: list[Event] = []

    async def main() -> None:
        async with AgentBatch(cs=3, ce=9, on_event=events.append) as batch:

            async def drain() -> None:
                await anyio.sleep(1.5)
                batch.drain()
                batch.drain()  # again changes nothing

            async with anyio.create_task_group() as group:
                group.start_soon(drain)
                results = await batch.map(hold, [1.0] * 10)
            assert [result.ok for result in results] == [True] * 6 + [False] * 4
            for result in results[6:]:
                assert isinstance(result.error, BatchDrained)
                assert isinstance(result.error, TrajectoryCancelled)
                assert result.timing.admitted_s is None
            assert batch.clock.now() == pytest.approx(2)
            later = await batch.map(hold, [1.0] * 2)
            assert [type(result.error) for result in later] == [BatchDrained] * 2
            with pytest.raises(BatchDrained):
                async with batch.trajectory("own"):
                    raise AssertionError("ran")
            async with batch.as_completed(hold, [1.0]) as late:
                assert [result.ok async for result in late] == [False]
            assert_nothing_held(batch)

    virtual_clock.run(main, backend=backend)
    never = [event for event in events if isinstance(event, TrajectoryEnded) and event.admitted_s is None]
    assert [event.outcome for event in never] == ["cancelled"] * 8
    notices = [event.message for event in events if isinstance(event, Notice)]
    assert notices == ["the batch drains: 4 waiting trajectories are not run, 3 finish"]
    summary = summarize(events)
    assert (summary.completed, summary.cancelled, summary.unfinished) == (6, 8, 0)


@BACKENDS
def test_draining_from_within_and_with_loops_of_their_own(backend: str) -> None:
    async def main() -> None:
        async with AgentBatch(cs=1, ce=1) as batch:
            seen: list[str] = []

            async def own(name: str) -> None:
                try:
                    async with batch.trajectory(name) as trajectory:
                        await hold(trajectory, 1)
                        batch.drain()
                        await hold(trajectory, 1)  # it goes on all the same
                        seen.append(f"{name} finished")
                except BatchDrained:
                    seen.append(f"{name} drained")

            async with anyio.create_task_group() as group:
                group.start_soon(own, "first")
                await anyio.wait_all_tasks_blocked()
                group.start_soon(own, "second")
            assert seen == ["second drained", "first finished"]
            assert_nothing_held(batch)
        with pytest.raises(BatchClosed):
            batch.drain()

    virtual_clock.run(main, backend=backend)
