"""What `AgentBatch` offers beyond `map`, from threads: results as they end, drain, resize, commands, plain clients."""

import threading
from collections.abc import Iterator

import pytest
from runtime_helpers import ASK, jobs
from sync_helpers import assert_nothing_held, served, wait_until

from agentbatch import (
    BatchClosed,
    BatchDrained,
    EnvironmentTimeout,
    Failed,
    SyncAgentBatch,
    SyncTrajectory,
    TrajectoryCancelled,
    UsageError,
)
from agentbatch.events import Event, LimitsChanged


def test_results_come_as_they_end() -> None:
    gates = [threading.Event() for _ in range(4)]

    def solve(trajectory: SyncTrajectory, task: int) -> int:
        gates[task].wait(30)
        if task == 2:
            raise LookupError
        return task

    with SyncAgentBatch(cs=4, ce=1) as batch:
        with batch.as_completed(solve, range(4), key=lambda task: f"k{task}") as results:
            for task in (3, 1, 2, 0):
                gates[task].set()
                assert next(results).key == f"k{task}"
            assert list(results) == list(results) == []
        assert_nothing_held(batch)
        with batch.as_completed(solve, []) as results:
            assert list(results) == []


def test_leaving_early_cancels_what_has_not_ended() -> None:
    told: list[BaseException] = []

    def solve(trajectory: SyncTrajectory, task: int) -> None:
        if task:
            try:
                trajectory.pause(30)
            except TrajectoryCancelled as error:
                told.append(error)
                raise

    with SyncAgentBatch(cs=3, ce=1) as batch:
        with pytest.raises(ZeroDivisionError), batch.as_completed(solve, range(9)) as results:
            assert next(results).ok
            raise ZeroDivisionError
        wait_until(lambda: not batch.statistics().admission.held)
        assert_nothing_held(batch)
        assert batch.statistics().trajectories_failed == 8
    assert told


def test_what_cannot_begin_says_so_on_entry() -> None:
    async def coroutine_function(trajectory: SyncTrajectory, task: int) -> None: ...

    with SyncAgentBatch(cs=1, ce=1) as batch:
        with pytest.raises(UsageError, match="twice"):
            batch.as_completed(lambda trajectory, task: None, [1, 2], key=lambda task: "k").__enter__()
        with pytest.raises(UsageError, match="coroutine function"):
            batch.as_completed(coroutine_function, [1]).__enter__()
        assert_nothing_held(batch)
    with pytest.raises(BatchClosed):
        batch.as_completed(lambda trajectory, task: None, [1])


def test_tasks_are_read_in_the_calling_thread() -> None:
    def tasks() -> Iterator[int]:
        yield threading.get_ident()
        yield batch.statistics().admission.held  # which would wait for ever on the loop's thread

    with SyncAgentBatch(cs=2, ce=1) as batch:
        results = batch.map(lambda trajectory, task: task, tasks())
        assert [result.value for result in results if result.ok] == [threading.get_ident(), 0]
        with batch.as_completed(lambda trajectory, task: task, tasks(), key=str) as one_by_one:
            assert {result.key for result in one_by_one} == {str(threading.get_ident()), "0"}


def test_resize_and_drain_from_threads() -> None:
    events: list[Event] = []
    both = threading.Barrier(2)

    def solve(trajectory: SyncTrajectory, task: int) -> None:
        if task == 0:
            batch.resize(cs=2, ce={"web": 4})
        if task < 2:
            both.wait(30)
            batch.drain()

    with SyncAgentBatch(cs=1, ce={"default": 1, "web": 1}, on_event=events.append) as batch:
        results = batch.map(solve, range(5))
        assert [result.ok for result in results] == [True, True, False, False, False]
        assert isinstance(results[4], Failed)
        assert isinstance(results[4].error, BatchDrained)
        with pytest.raises(UsageError, match="at least 1"):
            batch.resize(cs=0)
        with pytest.raises(BatchDrained):
            batch.trajectory("late").__enter__()
    [changed] = [event for event in events if isinstance(event, LimitsChanged)]
    assert (changed.cs, changed.ce) == (2, {"default": 1, "web": 4})
    for use in (batch.drain, lambda: batch.resize(cs=1), batch.plain_client):
        with pytest.raises(BatchClosed):
            use()


def test_a_command_from_a_thread_is_a_job_that_can_be_stopped() -> None:
    events: list[Event] = []
    with SyncAgentBatch(cs=2, ce=1, on_event=events.append) as batch:
        with batch.trajectory("k") as trajectory:
            done = trajectory.run_process(["cat"], stdin=b"hello")
            assert (done.returncode, done.stdout) == (0, b"hello")
            with trajectory.environment():  # which it joins
                assert trajectory.run_process("exit 3").returncode == 3
            with pytest.raises(EnvironmentTimeout):
                trajectory.run_process("sleep 60", timeout_s=0.05, grace_s=1.0)

        def solve(trajectory: SyncTrajectory, task: int) -> None:
            threading.Timer(0.05, trajectory.cancel, ["enough"]).start()
            trajectory.run_process("sleep 60", grace_s=1.0)

        [result] = batch.map(solve, [1])
        assert isinstance(result, Failed)
        assert str(result.error) == "enough"
        wait_until(lambda: not batch.statistics().admission.held)
        assert_nothing_held(batch)
    assert [job.outcome for job in jobs(events)] == ["ok", "ok", "failed", "cancelled"]


def test_a_plain_client_in_threads_is_unlabelled_and_says_so() -> None:
    with served() as server, SyncAgentBatch(cs=1, ce=1, base_url=server.url) as batch:
        client = batch.plain_client()
        copy = client.with_options(max_retries=0)
        client.close()
        assert copy.chat.completions.create(**ASK).choices[0].message.content == "done"
        client.chat.completions.create(**ASK)
        assert all("x-smg-routing-key" not in received.headers for received in server.server.received)
        assert batch.statistics().turns_completed == 0
        assert batch.statistics().notices == 1
    with pytest.raises(BatchClosed):
        client.chat.completions.create(**ASK)
