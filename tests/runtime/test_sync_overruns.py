"""Threads that run on although their trajectory was told to stop: nobody waits for them but their slot."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from runtime_helpers import ASK, jobs, turns, until
from sync_helpers import assert_nothing_held, served, wait_until

from agentbatch import (
    AgentBatch,
    Failed,
    SyncAgentBatch,
    SyncTrajectory,
    TrajectoryCancelled,
    TrajectoryTimeout,
)
from agentbatch.events import Event, Notice, RunEnded, TrajectoryEnded
from agentbatch.runtime import core
from agentbatch.testing import Answer
from agentbatch.trace import read_run, summarize


def kinds(events: list[Event]) -> list[str]:
    return [event.kind for event in events if isinstance(event, Notice)]


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Ends the stubborn threads of a test at the latest with it."""
    monkeypatch.setattr(core, "SETTLE_S", 0.1)
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.anyio
async def test_a_stuck_thread_holds_up_its_slot_and_nobody_else(release: threading.Event) -> None:
    events: list[Event] = []

    def solve(trajectory: SyncTrajectory, task: int) -> int:
        if task == 0:
            release.wait(30)
        return task

    async with AgentBatch(cs=2, ce=1, trajectory_timeout_s=0.05, on_event=events.append) as batch:
        stuck, *others = await batch.map_sync(solve, range(6))
        assert isinstance(stuck, Failed)
        assert isinstance(stuck.error, TrajectoryTimeout)
        assert stuck.timed_out
        assert [result.value for result in others if result.ok] == [1, 2, 3, 4, 5]
        assert batch.statistics().admission.held == 1
        assert kinds(events) == ["overrun"]
        again = await batch.map_sync(lambda trajectory, task: trajectory.label, [0])  # the same key, a label of its own
        assert again[0].ok
        assert again[0].value == f"{stuck.label}~2"
        release.set()
        await until(lambda: batch.statistics().admission.held == 0)
    assert kinds(events) == ["overrun"]
    ended = {event.label: event for event in events if isinstance(event, TrajectoryEnded)}
    assert len(ended) == 7
    assert ended[stuck.label].timed_out


@pytest.mark.anyio
async def test_cancelling_map_sync_does_not_wait_for_a_stuck_thread(release: threading.Event) -> None:
    begun: list[int] = []
    events: list[Event] = []

    def solve(trajectory: SyncTrajectory, task: int) -> None:
        begun.append(task)
        release.wait(30)

    async with AgentBatch(cs=3, ce=1, on_event=events.append) as batch:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:
                group.start_soon(batch.map_sync, solve, range(9))
                await until(lambda: len(begun) == 3)
                group.cancel_scope.cancel()
            assert (batch.statistics().admission.held, batch.statistics().admission.waiting) == (3, 0)
    assert kinds(events) == ["overrun"] * 3 + ["abandoned"]
    assert [event.outcome for event in events if isinstance(event, TrajectoryEnded)] == ["cancelled"] * 9
    assert isinstance(events[-1], RunEnded)
    assert batch.statistics().admission.held == 0


def test_a_batch_ends_with_a_complete_record_although_a_thread_does_not(
    release: threading.Event, tmp_path: Path
) -> None:
    events: list[Event] = []
    errors: list[BaseException] = []
    running: list[SyncTrajectory] = []

    def solve(trajectory: SyncTrajectory, task: int) -> None:
        running.append(trajectory)
        if task == 1:
            trajectory.client.chat.completions.create(**ASK)
        try:
            with trajectory.environment():
                wait_until(lambda: len(server.server.received) == 1)
                for one in running:
                    one.cancel()
                release.wait(30)
                trajectory.client.models.list()
        except BaseException as error:
            errors.append(error)
            raise

    record = tmp_path / "run.jsonl"
    with served(delay_s=20) as server:
        with SyncAgentBatch(cs=2, ce=1, base_url=server.url, on_event=events.append, record=record) as batch:
            assert not any(result.ok for result in batch.map(solve, [0, 1]))
            statistics = batch.statistics()
            assert (statistics.admission.held, statistics.turns_in_flight) == (2, 1)
        assert_nothing_held(batch)
        release.set()
        wait_until(lambda: bool(errors))
    assert len(turns(events)) == len(jobs(events)) == 1
    assert isinstance(events[-1], RunEnded)
    summary = summarize(read_run(record))
    assert (summary.unfinished, summary.cancelled) == (0, 2)


READERS: list[Callable[[Any], Any]] = [
    lambda client: list(client.chat.completions.create(**ASK, stream=True)),
    lambda client: list(client.chat.completions.with_raw_response.create(**ASK, stream=True).http_response.iter_raw()),
]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("in_map", [True, False])
def test_a_thread_that_reads_a_silent_stream_hears_of_the_end(read: Callable[[Any], Any], in_map: bool) -> None:
    events: list[Event] = []

    def solve(trajectory: SyncTrajectory, task: int) -> None:
        read(trajectory.client)

    def block() -> None:
        with batch.trajectory("k") as trajectory:
            read(trajectory.client)

    with served(lambda received: Answer(text="a b c", stall_after=1)) as server:
        with SyncAgentBatch(
            cs=1, ce=1, base_url=server.url, trajectory_timeout_s=0.2, on_event=events.append
        ) as batch:
            if in_map:
                [result] = batch.map(solve, [1])
                assert isinstance(result, Failed)
                assert isinstance(result.error, TrajectoryTimeout)
            else:
                with pytest.raises(TrajectoryTimeout):
                    block()
            assert_nothing_held(batch)
        assert kinds(events) == []
    [turn] = turns(events)
    assert turn.timed_out


def test_a_block_that_runs_on_is_told_of(release: threading.Event) -> None:
    with SyncAgentBatch(cs=1, ce=1) as batch:
        with pytest.raises(TrajectoryCancelled, match="enough"), batch.trajectory("k") as trajectory:
            trajectory.cancel("enough")
            wait_until(lambda: batch.statistics().notices == 1)
            assert batch.statistics().admission.held == 1
        assert_nothing_held(batch)
