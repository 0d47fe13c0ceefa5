"""Time-outs: from the grant, never from the queue; whatever they end is marked."""

import threading
from typing import Any

import anyio
import anyio.lowlevel
import openai
import pytest
from runtime_helpers import ASK, assert_nothing_held, attempts, in_order, jobs, turns

from agentbatch import (
    AgentBatch,
    EnvironmentTimeout,
    TimedOut,
    TrajectoryCancelled,
    TrajectoryTimeout,
    TurnTimeout,
    UsageError,
)
from agentbatch.events import Event, Notice, TrajectoryEnded
from agentbatch.testing import Answer, ScriptedServer, virtual_clock
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


@pytest.mark.parametrize("streamed", [False, True])
def test_a_turn_times_out_over_all_its_attempts(streamed: bool) -> None:
    events: list[Event] = []
    slow = Answer(delay_s=30) if not streamed else Answer(text="a b c", stall_after=1)
    script = in_order(Answer(status=500, headers={"retry-after-ms": "1"}), slow, Answer())

    async def main() -> None:
        async with (
            ScriptedServer(script) as server,
            AgentBatch(cs=1, ce=1, base_url=server.url, turn_timeout_s=1.5, on_event=events.append) as batch,
            batch.trajectory("k") as trajectory,
        ):
            with pytest.raises(TurnTimeout, match="longer than turn_timeout_s"):
                reply = await trajectory.client.chat.completions.create(**ASK, stream=streamed)
                if streamed:
                    async for _ in reply:
                        pass
            await trajectory.client.chat.completions.create(**ASK)
            assert trajectory.usage.timeouts == 1
            assert batch.statistics().turns_in_flight == 0

    anyio.run(main)
    assert [(turn.outcome, turn.timed_out, turn.attempts) for turn in turns(events)] == [
        ("failed", True, 2),
        ("ok", False, 1),
    ]
    assert [one.status for one in attempts(events)] == [500]


def test_a_raw_body_read_too_slowly_by_the_server_is_a_time_out() -> None:
    events: list[Event] = []

    async def main() -> None:
        async with (
            ScriptedServer(lambda received: Answer(text="a b c", stall_after=1)) as server,
            AgentBatch(cs=1, ce=1, base_url=server.url, turn_timeout_s=0.5, on_event=events.append) as batch,
            batch.trajectory("k") as trajectory,
        ):
            completions = trajectory.client.chat.completions
            with pytest.raises(TurnTimeout):
                async with completions.with_streaming_response.create(**ASK, stream=True) as response:
                    async for _ in response.iter_bytes():
                        pass
            raw = await completions.with_raw_response.create(**ASK, stream=True)
            with pytest.raises(TurnTimeout):
                async for _ in raw.parse():
                    pass

    anyio.run(main)
    assert [(turn.outcome, turn.timed_out) for turn in turns(events)] == [("failed", True)] * 2


def test_a_connections_own_time_out_is_marked_too() -> None:
    events: list[Event] = []

    async def main() -> None:
        async with (
            ScriptedServer(lambda received: Answer(delay_s=30)) as server,
            AgentBatch(cs=1, ce=1, base_url=server.url, timeout_s=0.1, retries=0, on_event=events.append) as batch,
            batch.trajectory("k") as trajectory,
        ):
            with pytest.raises(openai.APITimeoutError):
                await trajectory.client.chat.completions.create(**ASK)
            assert trajectory.usage.timeouts == 1

    anyio.run(main)
    assert [turn.timed_out for turn in turns(events)] == [True]


@pytest.mark.parametrize(
    ("option", "value", "named"),
    [("turn_timeout_s", 0, "turn_timeout_s"), ("trajectory_timeout_s", "9", "trajectory_timeout_s"),
     ("environment_timeout_s", -1.0, "environment_timeout_s"), ("environment_timeout_s", {"web": 3.0}, "'web'"),
     ("environment_timeout_s", {"default": float("nan")}, "'default'"), ("timeout_s", True, "timeout_s")],
)  # fmt: skip
def test_a_time_out_that_cannot_be_is_refused(option: str, value: Any, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        AgentBatch(cs=1, ce=1, **{option: value})


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


def test_a_refused_connection_is_no_time_out() -> None:
    """The SDK's aiohttp transport says `Request timed out` for it."""
    events: list[Event] = []

    async def main() -> None:
        async with ScriptedServer() as server:
            options: Any = {"base_url": server.url, "retries": 0, "on_event": events.append}
            async with AgentBatch(cs=1, ce=1, **options) as batch, batch.trajectory("k") as trajectory:
                await server.__aexit__(None, None, None)
                with pytest.raises(openai.APIConnectionError):
                    await trajectory.client.chat.completions.create(**ASK)
                assert trajectory.usage.timeouts == 0

    anyio.run(main)
    assert [turn.timed_out for turn in turns(events)] == [False]
    assert "[Client" in attempts(events)[0].error, "what broke is named: an aiohttp.ClientConnectionError"
    assert summarize(events).timeouts == 0
