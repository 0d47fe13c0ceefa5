"""Trajectories of threads that are out of time, have ended, or are interrupted by Ctrl-C."""

import _thread
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sync_helpers import assert_nothing_held, wait_until

from agentbatch import (
    Failed,
    SyncAgentBatch,
    SyncTrajectory,
    TrajectoryTimeout,
)
from agentbatch.events import RunEnded, TrajectoryEnded
from agentbatch.trace.run import read_run


def test_a_trajectory_that_is_out_of_time_is_told_so() -> None:
    def solve(trajectory: SyncTrajectory, task: int) -> None:
        trajectory.pause(30)  # as a retry does

    with SyncAgentBatch(cs=1, ce=1, trajectory_timeout_s=0.02) as batch:
        [result] = batch.map(solve, [1])
    assert isinstance(result, Failed)
    assert isinstance(result.error, TrajectoryTimeout)
    assert result.timed_out


def test_cancelling_what_has_ended_changes_nothing() -> None:
    with SyncAgentBatch(cs=1, ce=1) as batch:
        with batch.trajectory("k") as trajectory:
            pass
        trajectory.cancel()
    trajectory.cancel()
    assert batch.statistics().trajectories_completed == 1


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_in_map_cancels_the_run_and_is_raised_again(tmp_path: Path) -> None:
    record = tmp_path / "run.jsonl"

    def solve(trajectory: SyncTrajectory, task: int) -> None:
        if task == 2:
            _thread.interrupt_main()
        while True:
            trajectory.pause(30)

    with pytest.raises(KeyboardInterrupt), SyncAgentBatch(cs=3, ce=1, record=record, drain_on_interrupt=False) as batch:
        batch.map(solve, range(9))
    assert_nothing_held(batch)
    recorded = read_run(record).events
    assert isinstance(recorded[-1], RunEnded)
    assert [event.outcome for event in recorded if isinstance(event, TrajectoryEnded)] == ["cancelled"] * 9


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_while_waiting_for_admission_leaves_nothing_behind() -> None:
    holding, release = threading.Event(), threading.Event()

    def hold() -> None:
        with batch.trajectory("holder"):
            holding.set()
            release.wait(30)

    def interrupt() -> None:
        wait_until(lambda: batch.statistics().admission.waiting == 1)
        _thread.interrupt_main()

    with SyncAgentBatch(cs=1, ce=1, drain_on_interrupt=False) as batch, ThreadPoolExecutor(2) as pool:
        pool.submit(hold)
        holding.wait(30)
        pool.submit(interrupt)
        with pytest.raises(KeyboardInterrupt):
            batch.trajectory("other").__enter__()
        wait_until(lambda: batch.statistics().admission.waiting == 0)
        release.set()
    assert_nothing_held(batch)
