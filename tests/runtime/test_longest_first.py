"""Longest first: who is admitted when, with results in input order all the same; and what goes with it."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest
from runtime_helpers import assert_nothing_held, jobs, until

from agentbatch import AgentBatch, BatchDrained, SyncAgentBatch
from agentbatch.events import Admitted, Event, Notice, RunStarted, TrajectoryEnded
from agentbatch.testing import virtual_clock

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])
PROFILE = {"a": 10.0, "b": 50.0, "c": 30.0, "d": 20.0, "e": 40.0}
LONGEST_FIRST = ["b", "e", "c", "d", "a"]


def admissions(events: list[Event]) -> list[tuple[float, str]]:
    return [(event.at_s, event.key) for event in events if isinstance(event, Admitted)]


def notices(events: list[Event]) -> list[str]:
    return [event.message for event in events if isinstance(event, Notice) and event.kind == "profile-unknown"]


def batch_of(cs: int, events: list[Event], **options: Any) -> AgentBatch:
    given = {"profile": PROFILE, **options}
    return AgentBatch(cs=cs, ce=1, admission="longest-first", on_event=events.append, **given)


async def take(trajectory: Any, key: str) -> str:
    await anyio.sleep(PROFILE.get(key, 1.0))
    return key.upper()


@BACKENDS
def test_map_admits_the_longest_and_returns_in_input_order(backend: str) -> None:
    events: list[Event] = []

    async def main() -> None:
        async with batch_of(2, events) as batch:
            results = await batch.map(take, sorted(PROFILE), key=str)
            assert [result.value for result in results] == ["A", "B", "C", "D", "E"]
            assert [result.key for result in results] == sorted(PROFILE)
            assert_nothing_held(batch)

    virtual_clock.run(main, backend=backend)
    # b and e at once; c when e ends, d when b does, a at 70 when c and d do: who wakes first differs
    assert sorted(admissions(events)) == [(0.0, "b"), (0.0, "e"), (40.0, "c"), (50.0, "d"), (70.0, "a")]
    [started] = [event for event in events if isinstance(event, RunStarted)]
    assert started.admission == "longest-first"
    assert not notices(events)


@BACKENDS
def test_as_completed_and_map_sync_admit_the_same_way(backend: str) -> None:
    async def main() -> None:
        events: list[Event] = []
        async with batch_of(1, events) as batch, batch.as_completed(take, sorted(PROFILE), key=str) as results:
            assert [result.key async for result in results] == LONGEST_FIRST
        assert [key for _, key in admissions(events)] == LONGEST_FIRST

    virtual_clock.run(main, backend=backend)

    async def threads() -> None:
        events: list[Event] = []
        async with batch_of(1, events) as batch:
            results = await batch.map_sync(lambda trajectory, key: key, sorted(PROFILE), key=str)
            assert [result.value for result in results] == sorted(PROFILE)
        assert [key for _, key in admissions(events)] == LONGEST_FIRST

    anyio.run(threads, backend=backend)


def test_a_batch_without_event_loop_admits_the_same_way() -> None:
    events: list[Event] = []
    options: Any = {"cs": 1, "admission": "longest-first", "profile": PROFILE, "on_event": events.append}
    with SyncAgentBatch(**options) as batch:
        assert [result.value for result in batch.map(lambda _, key: key, sorted(PROFILE), key=str)] == sorted(PROFILE)
        with batch.as_completed(lambda _, key: key, sorted(PROFILE), key=str) as results:
            assert [result.key for result in results] == LONGEST_FIRST
        assert [key for _, key in admissions(events)] == 2 * LONGEST_FIRST

        def own(key: str) -> None:
            with batch.trajectory(key):
                pass

        events.clear()
        with ThreadPoolExecutor(5) as pool:
            with batch.trajectory("first"):
                waiting = [pool.submit(own, key) for key in PROFILE]
                anyio.run(until, lambda: batch.statistics().admission.waiting == len(PROFILE))
            for one in waiting:
                one.result()
        assert [key for _, key in admissions(events)] == ["first", *LONGEST_FIRST]


@BACKENDS
def test_a_trajectory_waits_under_its_own_key_and_unknown_ones_under_the_median(backend: str) -> None:
    """The median is 30 s: "new" goes before "d" and, having come earlier, before "c"."""
    events: list[Event] = []

    async def main() -> None:
        async with batch_of(1, events) as batch, anyio.create_task_group() as group:

            async def one(key: str) -> None:
                async with batch.trajectory(key):
                    await anyio.sleep(1.0)

            for key in ("first", "d", "new", "c", "a", "b", "newer"):
                group.start_soon(one, key)
                await anyio.sleep(0.1)
            await batch.map(take, ["e"], key=str)

    virtual_clock.run(main, backend=backend)
    # "e" takes its place among those that wait, and every later end hands on to the longest left
    assert [key for _, key in admissions(events)] == ["first", "b", "e", "new", "c", "newer", "d", "a"]
    [once] = notices(events)
    assert once.startswith("a task key is not in the profile: expected to take its median, 30.0 s; give tasks")


@BACKENDS
def test_keys_that_the_profile_does_not_know_are_announced(backend: str) -> None:
    events: list[Event] = []

    async def main() -> None:
        async with batch_of(9, events) as batch:
            await batch.map(take, ["x", "y", "z"])  # without key=…, positions
            await batch.map(take, ["a", "y", "z", "b", "c"], key=str)

    virtual_clock.run(main, backend=backend)
    first, second = notices(events)
    assert first.startswith("none of the 3 task keys is in the profile: they are admitted as they were submitted; give")
    assert second.startswith("2 of the 5 task keys are not in the profile: expected to take its median, 30.0 s; give")


@BACKENDS
def test_drain_and_resize_keep_to_the_order(backend: str) -> None:
    events: list[Event] = []

    async def solve(trajectory: Any, key: str) -> None:
        if key == "b":
            trajectory.batch.resize(cs=2)
        await anyio.sleep(PROFILE[key] - (key == "c"))  # ends alone, at 69 s: trio wakes equals in any order
        if key == "c":
            trajectory.batch.drain()

    async def main() -> None:
        async with batch_of(1, events) as batch:
            results = await batch.map(solve, sorted(PROFILE), key=str)
            assert [result.ok for result in results] == [False, True, True, True, True]
            assert isinstance(results[0].error, BatchDrained)
            assert_nothing_held(batch)

    virtual_clock.run(main, backend=backend)
    assert admissions(events) == [(0.0, "b"), (0.0, "e"), (40.0, "c"), (50.0, "d")]
    ends = [event.key for event in events if isinstance(event, TrajectoryEnded) and event.admitted_s is None]
    assert ends == ["a"]


@BACKENDS
def test_a_run_is_the_profile_of_the_next(backend: str, tmp_path: Path) -> None:
    """Recorded as submitted, then run longest first: 90 s become 80."""
    record = tmp_path / "run.jsonl"
    took: list[float] = []

    async def main() -> None:
        async with AgentBatch(cs=2, record=record) as batch:
            await batch.map(take, sorted(PROFILE), key=str)
            took.append(batch.statistics().now_s)
        events: list[Event] = []
        async with batch_of(2, events, profile=record) as batch:
            await batch.map(take, sorted(PROFILE), key=str)
            took.append(batch.statistics().now_s)
        assert not notices(events)

    virtual_clock.run(main, backend=backend)
    assert took == [90.0, 80.0]


@BACKENDS
def test_held_slots_count_once_in_the_progress_of_their_trajectory(backend: str) -> None:
    """Also of a job that fails or is cancelled; blocks that join count no second time; a child's are its own."""
    events: list[Event] = []

    async def solve(trajectory: Any, _: int) -> None:
        async with trajectory.environment():
            await anyio.sleep(2.0)
            async with trajectory.environment():
                await anyio.sleep(1.0)
        assert trajectory.progress.environment_seconds == 3.0
        with pytest.raises(ZeroDivisionError):
            async with trajectory.environment():
                await anyio.sleep(4.0)
                raise ZeroDivisionError
        with anyio.move_on_after(5.0):
            async with trajectory.environment():
                await anyio.sleep_forever()
        child = trajectory.child("judge")
        assert child.progress.environment_seconds == 12.0
        async with child.environment():
            await anyio.sleep(10.0)
        assert (child.progress.environment_seconds, trajectory.progress.environment_seconds) == (22.0, 12.0)

        async def hold() -> None:
            async with child.environment():
                await anyio.sleep(5.0)

        async with anyio.create_task_group() as group:
            group.start_soon(hold)
            await anyio.sleep(1.0)
            with anyio.move_on_after(1.0):
                async with trajectory.environment():
                    raise AssertionError("never granted")
        assert (child.progress.environment_seconds, trajectory.progress.environment_seconds) == (27.0, 12.0)

    async def main() -> None:
        async with AgentBatch(cs=2, ce=1, env_policy="slow-step", on_event=events.append) as batch:
            [result] = await batch.map(solve, [0])
            assert result.ok, result
            assert_nothing_held(batch)

    virtual_clock.run(main, backend=backend)
    assert sum(one.ended_s - one.granted_s for one in jobs(events) if one.granted_s is not None) == 27.0


@BACKENDS
def test_depth_slow_step_and_auto_bands_decide_who_runs_next(backend: str) -> None:
    """One slot; "hold" keeps it to 100 s, meanwhile each of the others asks after turns of its own."""
    turns = {"shallow": (1, 1.0), "deep": (4, 2.0), "slow": (2, 20.0), "late": (5, 9.0)}

    def order(**options: Any) -> list[str]:
        ran: list[str] = []

        async def solve(trajectory: Any, key: str) -> None:
            count, seconds = turns.get(key, (0, 0.0))
            for _ in range(count):
                turn = trajectory.begin_turn("/chat/completions", streamed=False)
                await anyio.sleep(seconds)
                turn.finish()
            async with trajectory.environment():
                ran.append(key)
                await anyio.sleep(100.0 if key == "hold" else 1.0)

        async def main() -> None:
            async with AgentBatch(cs=9, ce=1, **options) as batch:
                assert all(result.ok for result in await batch.map(solve, ["hold", *turns]))

        virtual_clock.run(main, backend=backend)
        return ran

    assert order() == ["hold", "deep", "shallow", "late", "slow"]  # bands of 30 s: late and slow asked at 45 and 40 s
    assert order(env_policy="depth") == ["hold", "late", "deep", "slow", "shallow"]
    assert order(env_policy="slow-step") == ["hold", "slow", "late", "shallow", "deep"]  # 17.5, 10.7, 10.3, 6.3
    assert order(band_s="auto") == ["hold", "deep", "shallow", "late", "slow"]  # nobody has waited yet when they ask


def test_auto_bands_hear_of_every_grant_of_their_own_resource() -> None:
    async def main() -> None:
        async with AgentBatch(cs=9, ce={"default": 1, "web": 1}, band_s="auto") as batch:

            async def solve(trajectory: Any, n: int) -> None:
                async with trajectory.environment():
                    await anyio.sleep(60.0)

            await batch.map(solve, range(4))  # waits of 0, 60, 120 and 180 s
            assert "B=90 s" in repr(batch.keys["default"])
            assert "B=30 s" in repr(batch.keys["web"])

    virtual_clock.run(main)
