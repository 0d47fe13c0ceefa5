"""A worker that went out: how it is asked, what brings it back, and that nothing of it outlives the batch."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest
from runtime_helpers import ASK, assert_nothing_held, changes, homes, in_flight, labels_seen, turns, until

from agentbatch import AgentBatch
from agentbatch.events import Event, Notice, RunEnded
from agentbatch.runtime import health
from agentbatch.testing import Answer, Received, ScriptedServer
from agentbatch.trace import summarize

pytestmark = pytest.mark.asyncio

KEYS = range(40)


async def ask_once(trajectory: Any, _: Any) -> str:
    reply = await trajectory.client.chat.completions.create(**ASK)
    return str(reply.choices[0].message.content)


def once_503(received: Received) -> Answer:
    return Answer(status=503)


async def lose(batch: AgentBatch, url: str) -> None:
    """Have a turn find out that `url` is dead."""
    urls = list(batch.options.base_urls)
    key = next(key for key, home in homes(urls, range(1000, 1100)).items() if home == url)
    [result] = await batch.map(ask_once, [key], key=str)
    assert result.ok
    assert batch.statistics().workers[url].live is False


@pytest.mark.parametrize("status", [200, 401, 404])
async def test_any_answer_below_500_brings_a_worker_back_and_503_does_not(status: int, quick_polls: None) -> None:
    """Case 41: an overloaded server's health says 503. A server without /health answers 404, and lives."""
    events: list[Event] = []
    async with ScriptedServer(once_503) as a, ScriptedServer() as b:
        a.health = 503
        options: Any = {"cs": 1, "ce": 1, "base_url": [a.url, b.url], "run": "r", "api_key": "sk-very-secret"}
        async with AgentBatch(**options, on_event=events.append) as batch:
            await lose(batch, a.url)
            await until(lambda: sum(one.path == "/health" for one in a.gets) > 3)
            assert changes(events) == [False]
            a.health = status
            await until(lambda: batch.statistics().workers[a.url].live)
            asked = len(a.gets)
            await batch.map(ask_once, KEYS)
            assert changes(events, a.url)[:2] == [False, True]
            assert asked <= len(a.gets)
        polls = [one for one in a.gets if one.path == "/health"]
        assert not any("authorization" in one.headers for one in polls)
        assert not [one for one in b.gets if one.path == "/health"]
    back = [one for one in events if isinstance(one, Notice) and one.kind == "worker-back"]
    assert f"/health answered {status}" in back[0].message


async def test_a_worker_that_takes_connections_and_says_nothing_stays_out(
    quick_polls: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "ANSWER_WITHIN_S", 0.02)
    asked = 0

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        await reader.read()  # until the client gives up
        writer.close()

    async with (
        ScriptedServer(once_503) as a,
        ScriptedServer() as b,
        AgentBatch(cs=1, ce=1, base_url=[a.url, b.url], run="r") as batch,
    ):
        await a.__aexit__(None, None, None)
        async with await asyncio.start_server(silent, "127.0.0.1", a.port):
            batch.workers.blame(a.url, ConnectionRefusedError())
            await until(lambda: asked > 3)
            assert batch.statistics().workers[a.url].live is False


async def test_only_its_trajectories_move_and_they_come_home_when_it_returns(quick_polls: None) -> None:
    """Case 41, sglang#14532: one failing worker moved everybody and dragged the others down."""
    events: list[Event] = []
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(ScriptedServer()) for _ in range(4)]
        urls, dead = [server.url for server in servers], servers[2]
        expected = homes(urls, KEYS)
        options: Any = {"cs": 40, "ce": 1, "base_url": urls, "run": "r", "alpha": 1000.0}  # so that all stay at home
        batch = await stack.enter_async_context(AgentBatch(**options, on_event=events.append))
        [first, killed, returned] = [anyio.Event() for _ in range(3)]
        waiting = 0

        async def solve(trajectory: Any, _: int) -> list[str]:
            nonlocal waiting
            for go in (first, killed, returned):
                waiting += 1
                await go.wait()
                await ask_once(trajectory, None)
            return [one.worker for one in turns(events) if one.label == trajectory.label]

        async def conduct() -> None:
            await until(lambda: waiting == len(KEYS))
            first.set()
            await until(lambda: waiting == 2 * len(KEYS))
            await dead.__aexit__(None, None, None)
            killed.set()
            await until(lambda: waiting == 3 * len(KEYS))
            assert batch.statistics().workers[dead.url].outages == 1
            async with ScriptedServer(port=dead.port) as again:
                await until(lambda: batch.statistics().workers[dead.url].live)
                returned.set()
                await until(lambda: batch.statistics().admission.held == 0)
                assert labels_seen(again) == {f"r-{key}" for key, home in expected.items() if home == dead.url}

        async with anyio.create_task_group() as group:
            group.start_soon(conduct)
            results = await batch.map(solve, KEYS)
        moved = 0
        for key, result in zip(KEYS, results, strict=True):
            assert result.ok
            home = expected[str(key)]
            assert result.value[0] == result.value[2] == home
            assert (result.value[1] == home) is (home != dead.url)
            moved += home == dead.url
        assert moved > 3
        assert changes(events) == [False, True]
        assert_nothing_held(batch)
        assert sum(one.attempts_failed for one in batch.statistics().workers.values()) == moved
    counts = {one.kind: one.count for one in summarize(events).notices}
    assert (counts["worker-out"], counts["worker-back"]) == (1, 1)  # said once each, not again for the events


@pytest.mark.parametrize("how", ["ends", "raises", "is cancelled", "raises when cancelled"])
async def test_a_batch_that_ends_with_a_worker_out_leaves_no_task(how: str, quick_polls: None) -> None:
    events: list[Event] = []
    async with ScriptedServer(once_503) as a, ScriptedServer() as b:
        a.health = 503
        before = asyncio.all_tasks()
        polling: set[Any] = set()

        async def run() -> None:
            options: Any = {"cs": 1, "ce": 1, "base_url": [a.url, b.url], "run": "r", "on_event": events.append}
            async with AgentBatch(**options) as batch:
                await lose(batch, a.url)
                await until(lambda: len(a.gets) > 2)
                polling.update(task for task in asyncio.all_tasks() - before if "_bring_back" in repr(task))
                if how == "raises":
                    raise ValueError("the block's own")
                if how == "is cancelled":
                    await anyio.sleep_forever()
                if how == "raises when cancelled":
                    try:
                        await anyio.sleep_forever()
                    finally:
                        raise ValueError("the block's own")

        if how == "ends":
            await run()
        elif how == "raises":
            with pytest.raises(ValueError, match="the block's own"):  # as it is, in no exception group
                await run()
        else:
            ended_by: list[type[BaseException]] = []

            async def watched() -> None:
                try:
                    await run()
                except BaseException as error:
                    ended_by.append(type(error))
                    if not isinstance(error, ValueError):
                        raise

            async with anyio.create_task_group() as group:
                group.start_soon(watched)
                await until(lambda: bool(polling))
                group.cancel_scope.cancel()
            assert ended_by == [ValueError if how == "raises when cancelled" else asyncio.CancelledError]
        assert len(polling) == 1
        assert all(task.done() for task in polling)
    assert isinstance(events[-1], RunEnded)
    assert changes(events) == [False]


async def test_a_worker_that_comes_and_goes_cannot_keep_a_turn_for_ever(quick_polls: None, waits: list[float]) -> None:
    async with ScriptedServer(once_503) as a, ScriptedServer(once_503) as b, ScriptedServer(once_503) as c:
        urls = [a.url, b.url, c.url]
        async with AgentBatch(cs=20, ce=1, base_url=urls, retries=3) as batch:
            results = await batch.map(ask_once, range(20))
            assert not any(result.ok for result in results)
            assert set(in_flight(batch).values()) == {0}
        assert len(a.received) + len(b.received) + len(c.received) <= 20 * (3 + 4)  # off each once, and four tries
        assert len(waits) == 20 * 3
