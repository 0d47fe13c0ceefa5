"""What cannot be stopped: a thread that runs on keeps its slot, and nothing else."""

import threading
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from runtime_helpers import assert_nothing_held, jobs

from agentbatch import (
    AgentBatch,
    EnvironmentTimeout,
    TrajectoryCancelled,
)
from agentbatch.events import Event, Notice
from agentbatch.trace import summarize

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


@BACKENDS
@pytest.mark.parametrize("how", ["time-out", "cancel"])
def test_a_stubborn_thread_is_an_overrun_and_its_slot_returns_when_it_ends(backend: str, how: str) -> None:
    """miles#1012: the caller goes on at once, the slot does not lie about what runs."""
    events: list[Event] = []
    release = threading.Event()

    async def main() -> None:
        limit_s = 0.05 if how == "time-out" else None
        async with AgentBatch(cs=2, ce=1, environment_timeout_s=limit_s, on_event=events.append) as batch:

            async def solve(trajectory: Any, _: int) -> None:
                if how == "cancel":
                    batch.background.start_soon(_cancel_soon, trajectory)
                await trajectory.act(release.wait, 20)

            [result] = await batch.map(solve, [0])
            assert isinstance(result.error, EnvironmentTimeout if how == "time-out" else TrajectoryCancelled)
            assert result.timed_out == (how == "time-out") or not result.usage.timeouts
            now = batch.statistics()
            assert (now.environment["default"].held, now.admission.held) == (1, 0)
            release.set()
            async with batch.trajectory("next") as trajectory:
                await trajectory.act(anyio.lowlevel.checkpoint)
            assert_nothing_held(batch)

    anyio.run(main, backend=backend)
    [job] = [job for job in jobs(events) if job.label.endswith("-0")]
    assert (job.outcome, job.timed_out) == ("overrun", how == "time-out")
    assert summarize(events).overruns == 1
    assert "overrun" in {event.kind for event in events if isinstance(event, Notice)}


async def _cancel_soon(trajectory: Any) -> None:
    await anyio.sleep(0.05)
    trajectory.cancel()


@BACKENDS
def test_the_end_of_a_batch_waits_a_little_for_a_stubborn_thread_and_then_says_so(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentbatch.runtime import core

    events: list[Event] = []
    release = threading.Event()
    monkeypatch.setattr(core, "SETTLE_S", 0.05)

    async def main() -> None:
        async with AgentBatch(cs=2, ce=1, environment_timeout_s=0.05, on_event=events.append) as batch:
            [result] = await batch.map(lambda trajectory, _: trajectory.act(release.wait, 20), [0])
            assert not result.ok
        assert batch.background.lingering == 0
        release.set()

    anyio.run(main, backend=backend)
    [job] = jobs(events)
    assert (job.outcome, job.timed_out) == ("overrun", True)
    assert [event.kind for event in events if isinstance(event, Notice)] == ["overrun", "overrun", "abandoned"]
    assert events[-1].event == "run_ended"


@BACKENDS
def test_a_caught_time_out_of_a_thread_is_marked_though_the_thread_still_runs(backend: str) -> None:
    release = threading.Event()

    async def main() -> None:
        async with AgentBatch(cs=1, ce=1) as batch:

            async def solve(trajectory: Any, _: int) -> str:
                try:
                    await trajectory.act(release.wait, 20, timeout_s=0.05)
                except EnvironmentTimeout:
                    return "caught"
                return "ran"

            [result] = await batch.map(solve, [0])
            assert (result.ok, result.value, result.timed_out, result.usage.timeouts) == (True, "caught", True, 1)
            release.set()

    anyio.run(main, backend=backend)
