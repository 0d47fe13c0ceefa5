"""Events and notices: every hook gets all of them in order, and a broken one harms nobody."""

from typing import Any

import anyio
import anyio.lowlevel
import pytest
from runtime_helpers import assert_nothing_held

from agentbatch import AgentBatch, BatchDrained
from agentbatch.events import Admitted, Event, JobEnded, Notice, RunEnded, RunStarted, TrajectoryEnded
from agentbatch.runtime.clock import BatchClock
from agentbatch.runtime.hub import MAX_NOTICES, Hub
from agentbatch.trace.run import read_run

pytestmark = pytest.mark.anyio


async def tool_once(trajectory: Any, n: int) -> None:
    await trajectory.act(anyio.lowlevel.checkpoint)


def broken(event: Event) -> None:
    raise RuntimeError("mine")


async def test_a_runs_events_tell_its_story_in_order() -> None:
    events: list[Event] = []
    async with AgentBatch(cs=1, ce=1, on_event=events.append) as batch:
        await batch.map(tool_once, range(2))
    assert [type(event) for event in events] == [
        RunStarted, Admitted, JobEnded, TrajectoryEnded, Admitted, JobEnded, TrajectoryEnded, RunEnded,
    ]  # fmt: skip
    started, ended = events[0], events[-1]
    assert isinstance(started, RunStarted)
    assert isinstance(ended, RunEnded)
    assert (started.cs, started.ce, ended.outcome) == (1, {"default": 1}, "ok")
    assert ended.priority_s is not None


async def test_a_hook_may_drain_at_every_trajectory_that_did_not_succeed() -> None:
    """Each one that the drain turns away is such a trajectory itself: a call within a call for all of them."""
    ended: list[str] = []

    def drain_on_failure(event: Event) -> None:
        if isinstance(event, TrajectoryEnded):
            ended.append(event.outcome)
            if event.outcome != "ok":
                batch.drain()

    async def fail(trajectory: Any, n: int) -> None:
        raise ValueError(n)

    async with AgentBatch(cs=1, ce=1, on_event=drain_on_failure) as batch:
        results = await batch.map(fail, range(3000))
        assert_nothing_held(batch)
        assert [notice.kind for notice in batch.hub.notices] == ["draining"]
    assert [type(result.error) for result in results if not result.ok] == (
        [ValueError] * 2 + [BatchDrained] * 2998  # the next one had its slot already
    )
    assert len(ended) == 3000


async def test_several_hooks_that_raise_are_each_dropped_once_and_the_rest_go_on() -> None:
    """One failing on the notice of another's failure used to end the batch."""
    events: list[Event] = []
    other = lambda event: broken(event)  # noqa: E731, PLW0108 - a second one
    batch = AgentBatch(cs=2, ce=1, on_event=broken)
    batch.hub.add(other)
    batch.hub.add(events.append)
    async with batch:
        results = await batch.map(tool_once, range(3))
    assert all(result.ok for result in results)
    assert [notice.kind for notice in batch.hub.notices] == ["hook-failed"] * 2
    assert sum(isinstance(event, Notice) for event in events) == 2
    assert sum(isinstance(event, TrajectoryEnded) for event in events) == 3


async def test_a_hook_that_fails_late_takes_nothing_from_the_record(tmp_path: Any) -> None:
    seen = 0

    def hook(event: Event) -> None:
        nonlocal seen
        seen += 1
        if isinstance(event, TrajectoryEnded):
            raise RuntimeError("mine")

    path = tmp_path / "run.jsonl"
    async with AgentBatch(cs=1, ce=1, on_event=hook, record=path) as batch:
        await batch.map(tool_once, range(3))
    run = read_run(path)
    assert run.torn is None
    assert sum(isinstance(event, TrajectoryEnded) for event in run.events) == 3
    [notice] = [event for event in run.events if isinstance(event, Notice)]
    assert notice.kind == "hook-failed"
    assert "RuntimeError" in notice.message
    assert seen == 4


async def test_how_a_run_ended_is_its_last_event() -> None:
    events: list[Event] = []
    with pytest.raises(ValueError, match="mine"):
        async with AgentBatch(cs=1, ce=1, on_event=events.append):
            raise ValueError("mine")
    with anyio.CancelScope() as scope:
        async with AgentBatch(cs=1, ce=1, on_event=events.append):
            scope.cancel()
            await anyio.lowlevel.checkpoint()
    outcomes = [event.outcome for event in events if isinstance(event, RunEnded)]
    assert outcomes == ["failed", "cancelled"]


async def test_a_batch_that_ends_before_its_trajectories_says_so() -> None:
    release = anyio.Event()
    async with anyio.create_task_group() as group:
        async with AgentBatch(cs=1, ce=1) as batch:

            async def late() -> None:
                async with batch.trajectory("late") as trajectory, trajectory.environment():
                    await release.wait()

            group.start_soon(late)
            await anyio.wait_all_tasks_blocked()
        [notice] = batch.hub.notices
        assert notice.kind == "closed-early"
        assert "1 trajectories ran" in notice.message
        release.set()
    assert batch.statistics().admission.held == 0


async def test_a_job_that_outlives_its_trajectory_is_an_overrun_and_keeps_its_slot() -> None:
    release = anyio.Event()
    async with AgentBatch(cs=1, ce=1) as batch, anyio.create_task_group() as group:

        async def stubborn(trajectory: Any) -> None:
            async with trajectory.environment():
                await release.wait()

        async with batch.trajectory("t") as trajectory:
            group.start_soon(stubborn, trajectory)
            await anyio.wait_all_tasks_blocked()
        assert [notice.kind for notice in batch.hub.notices] == ["overrun"]
        assert batch.statistics().environment["default"].held == 1
        release.set()
        await anyio.wait_all_tasks_blocked()
        assert batch.statistics().environment["default"].held == 0


async def test_notices_are_kept_in_number_and_counted_in_full() -> None:
    events: list[Event] = []
    clock = BatchClock()
    clock.start()
    hub = Hub(clock)
    hub.add(events.append)
    for n in range(MAX_NOTICES + 5):
        hub.notice("kind", f"number {n}")
    hub.notice("rare", "first", once=True)
    hub.notice("rare", "second", once=True)
    assert len(hub.notices) == MAX_NOTICES
    assert hub.notice_count == len(events) == MAX_NOTICES + 6
