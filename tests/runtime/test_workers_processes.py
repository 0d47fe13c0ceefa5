"""Worker processes that are killed under load, on asyncio and trio: every turn ends, and for its true reason."""

import os
import signal
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest
from runtime_helpers import ASK, assert_nothing_held, changes, homes, turns, until

from agentbatch import AgentBatch
from agentbatch.emulator import Spawned, spawn
from agentbatch.events import Event

pytestmark = pytest.mark.anyio

SPEEDUP = 60.0


async def started(count: int, stack: AsyncExitStack) -> list[Spawned]:
    workers = [spawn(workers=1, speedup=SPEEDUP) for _ in range(count)]
    async with anyio.create_task_group() as group:
        for worker in workers:
            stack.callback(worker._stop)
            group.start_soon(worker.__aenter__)
    return workers


# not trio and streamed: a stream read to its end leaves generators of the SDK half-way there, and each warns
@pytest.mark.parametrize(
    ("anyio_backend", "streamed"), [("asyncio", False), ("asyncio", True), ("trio", False)], indirect=["anyio_backend"]
)
async def test_one_of_four_is_killed_under_load(streamed: bool, quick_polls: None) -> None:
    """Case 41, sglang#14532: kill 1 of 4, only its keys move; they come home when it returns on the same port."""
    events: list[Event] = []
    keys = range(24)
    async with AsyncExitStack() as stack:
        workers = await started(4, stack)
        urls = [worker.urls[0] for worker in workers]
        expected = homes(urls, keys)
        # the bound is out of the way, so that whoever is not at home was moved by the death
        options: Any = {"cs": 24, "ce": 1, "base_url": urls, "run": "r", "alpha": 1000.0, "speedup": SPEEDUP}
        batch = await stack.enter_async_context(AgentBatch(**options, on_event=events.append))
        victim, dead = workers[1], urls[1]
        stop = False

        def phase() -> int:
            """0: all live, 1: one is out, 2: it is back; as the events have it, not as we get to know."""
            return len(changes(events))

        async def solve(trajectory: Any, _: int) -> list[tuple[int, str]]:
            placed = []
            while not stop:
                began_in = phase()
                ask = trajectory.client.chat.completions.create
                try:
                    reply = await ask(**ASK, stream=streamed, max_tokens=100, extra_body={"ignore_eos": True})
                    if streamed:
                        chunks = [chunk async for chunk in reply]
                        assert chunks[-1].choices[0].finish_reason == "length", "a short answer"
                    else:
                        assert reply.usage.completion_tokens == 100
                except Exception:
                    assert streamed, "nothing was answered yet: it should have moved"
                last = [turn for turn in turns(events) if turn.label == trajectory.label][-1]
                placed.append((began_in if phase() == began_in else -1, last.worker, last.outcome))
            return placed

        async def conduct() -> None:
            nonlocal stop
            await until(lambda: len(turns(events)) > 60)
            os.kill(victim.pid or 0, signal.SIGKILL)
            await until(lambda: not batch.statistics().workers[dead].live)
            seen = len(turns(events))
            await until(lambda: len(turns(events)) > seen + 80)
            port = int(dead.rpartition(":")[2].removesuffix("/v1"))
            await stack.enter_async_context(spawn(workers=1, base_port=port, speedup=SPEEDUP))
            await until(lambda: batch.statistics().workers[dead].live)
            seen = len(turns(events))
            await until(lambda: len(turns(events)) > seen + 80)
            stop = True

        async with anyio.create_task_group() as group:
            group.start_soon(conduct)
            results = await batch.map(solve, keys)
        for key, result in zip(keys, results, strict=True):
            assert result.ok, result
            home = expected[str(key)]
            for during, worker, outcome in result.value:
                if outcome == "failed":
                    assert (worker, during) == (dead, -1), "only a reply that was half read may fail"
                elif home != dead:
                    assert worker == home, "only the dead worker's trajectories move"
                elif during == 1:
                    assert worker != dead
                elif during in (0, 2):
                    assert worker == dead, "home again"
        assert changes(events) == [False, True]
        assert changes(events, dead) == [False, True]
        assert_nothing_held(batch)
        statistics = batch.statistics()
        assert sum(worker.turns_completed for worker in statistics.workers.values()) == statistics.turns_completed
        assert sum(worker.attempts_failed for worker in statistics.workers.values()) == statistics.attempts_failed
