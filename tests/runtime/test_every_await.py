"""Cancellation at every await point of a whole life, on both event loops, over real HTTP: nothing is left behind."""

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import sniffio
from anyio.from_thread import start_blocking_portal
from interrupting import Interrupting
from runtime_helpers import ASK, SDK_LEAVES_GENERATORS, assert_nothing_held

from agentbatch import AgentBatch, RetryPolicy, Trajectory
from agentbatch.events import RunEnded, RunStarted
from agentbatch.testing import Answer, Received, ScriptedServer
from agentbatch.trace import read_run

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", pytest.param("trio", marks=SDK_LEAVES_GENERATORS)])
MOST = 400
"""More suspensions than any of the lives below has."""
QUICK = RetryPolicy(attempts=2, first_wait_s=0.001, most_wait_s=0.002)


def script(received: Received) -> Answer:
    """Refuse some calls, so that they are retried."""
    refuse = received.body.get("user") == "refused once" and len(server_of(received).received) % 2
    return Answer(status=503, headers={"retry-after-ms": "1"}) if refuse else Answer(text="a b c d")


SERVERS: list[ScriptedServer] = []


def server_of(received: Received) -> ScriptedServer:
    return SERVERS[-1]


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    """A server on an event loop of its own, for clients on either."""
    with start_blocking_portal("asyncio") as portal:
        scripted = ScriptedServer(script)
        SERVERS.append(scripted)
        with portal.wrap_async_context_manager(scripted):
            yield scripted
    gc.collect()  # what the SDK left is collected in this test, and not in some later one


def wait_for_no_connection(server: ScriptedServer) -> None:
    patience = time.monotonic() + 10
    while server.connections and time.monotonic() < patience:
        time.sleep(0.001)
    assert server.connections == 0


async def live(trajectory: Trajectory) -> str:
    """Do everything a trajectory can do."""
    create: Any = trajectory.client.chat.completions.create
    await create(**ASK, user="refused once")
    stream = await create(**ASK, stream=True)
    async for _ in stream:
        break
    await stream.close()
    async for _ in await create(**ASK, stream=True):
        pass
    async with trajectory.environment():
        await anyio.lowlevel.checkpoint()
        async with trajectory.environment():
            await trajectory.act(anyio.lowlevel.checkpoint)
    await trajectory.act(time.sleep, 0.001)
    await trajectory.child("judge").client.chat.completions.create(**ASK)
    async with trajectory.client.chat.completions.with_streaming_response.create(**ASK) as response:
        await response.read()
    return "done"


async def crowd(trajectory: Trajectory, _: int) -> None:
    """Keep the environment busy, so that the one under test has to wait for it."""
    for _ in range(6):
        await trajectory.act(anyio.sleep, 0.001)


@BACKENDS
def test_a_trajectory_cancelled_anywhere_leaves_nothing(backend: str, server: ScriptedServer) -> None:
    """python/cpython#90155, agronholm/anyio#1145, indexable#2104: at each of its suspensions in turn, in a crowd.

    With every option that goes beyond the paper; the next test has none of them.
    """
    beyond: Any = {"admission": "longest-first", "profile": {n: n % 3 for n in range(12)}, "band_s": "auto"}

    async def main(at: int) -> bool:
        options: Any = {"base_url": server.url, "retries": QUICK, "environment_timeout_s": 30, **beyond}
        async with AgentBatch(cs=3, ce=1, **options) as batch:
            work: list[Interrupting] = []

            async def solve(trajectory: Trajectory, n: int) -> str | None:
                if n:
                    return await crowd(trajectory, n)
                work.append(Interrupting(live(trajectory), trajectory.cancel, at))
                return await work[0]

            results = await batch.map(solve, range(4))
            assert [result.ok for result in results[1:]] == [True] * 3
            if not work[0].reached:
                assert results[0].value == "done"
            with anyio.fail_after(10):
                while batch.background.lingering:  # noqa: ASYNC110 - a thread that was abandoned
                    await anyio.sleep(0.001)
            assert_nothing_held(batch)
            assert await the_right_number_enters(batch) == (3, 1)
            return work[0].reached
        return False

    assert every_suspension(main, backend) > 10
    wait_for_no_connection(server)


def every_suspension(main: Callable[[int], Awaitable[bool]], backend: str) -> int:
    """Run `main(at)` with at = 1, 2, 3, … until it comes to its end uninterrupted; returns that number."""
    for at in range(1, MOST):
        if not anyio.run(alone, main, at, backend=backend):
            return at
    raise AssertionError(f"no end within {MOST} suspensions")


async def alone(main: Callable[[int], Awaitable[bool]], at: int) -> bool:
    reached = await main(at)
    if sniffio.current_async_library() == "asyncio":  # a trio nursery ends no sooner than its tasks
        for _ in range(10):  # the loop ends generators that were collected in tasks of its own
            await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}
    return reached


async def the_right_number_enters(batch: AgentBatch) -> tuple[int, int]:
    """Return the peaks of trajectories and of jobs among twelve that want in."""
    active = inside = 0
    peaks = [0, 0]

    async def enter(trajectory: Trajectory, _: int) -> None:
        nonlocal active, inside
        active += 1
        peaks[0] = max(peaks[0], active)
        async with trajectory.environment():
            inside += 1
            peaks[1] = max(peaks[1], inside)
            await anyio.lowlevel.checkpoint()
            inside -= 1
        active -= 1

    results = await batch.map(enter, range(12))
    assert all(result.ok for result in results)
    return peaks[0], peaks[1]


@BACKENDS
def test_a_whole_batch_cancelled_anywhere_leaves_nothing_and_a_complete_record(
    backend: str, server: ScriptedServer, tmp_path: Path
) -> None:
    """From its start, which asks the server, to its end, which closes the pool."""
    batches: list[AgentBatch] = []

    async def life(record: Path) -> None:
        options: Any = {"base_url": server.url, "record": record, "retries": QUICK, "drain_on_interrupt": False}
        batch = AgentBatch(cs=2, ce=1, **options)
        batches.append(batch)
        async with batch, anyio.create_task_group() as group:
            group.start_soon(batch.map, crowd, range(2))
            async with batch.trajectory("t") as trajectory:
                await live(trajectory)

    async def main(at: int) -> bool:
        record = tmp_path / f"{backend}-{at}.jsonl"
        with anyio.CancelScope() as scope:
            work = Interrupting(life(record), scope.cancel, at)
            await work
        assert_nothing_held(batches[-1])
        assert batches[-1].background.lingering == 0
        if record.exists():
            events = read_run(record).events
            assert isinstance(events[0], RunStarted)
            assert isinstance(events[-1], RunEnded)
        return work.reached

    assert every_suspension(main, backend) > 10
    wait_for_no_connection(server)
