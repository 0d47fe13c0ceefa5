"""A worker that dies, or seems to: what takes it out, what becomes of the turns on it, what leaves it in."""

import inspect
from typing import Any

import openai
import pytest
from runtime_helpers import ASK, attempts, changes, homes, in_flight, turns, until

from agentbatch import AgentBatch
from agentbatch.events import Event, Notice, WorkerChanged
from agentbatch.testing import Answer, Received, ScriptedServer

pytestmark = pytest.mark.asyncio


def reset(received: Received) -> Answer:
    raise ConnectionResetError


def answering(**fields: Any) -> Any:
    return lambda received: Answer(**fields)


def a_key_at(url: str, urls: list[str]) -> str:
    return next(key for key, home in homes(urls, range(99)).items() if home == url)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("how", "reason"),
    [
        (answering(status=502), "answered 502"),
        (answering(status=503, headers={"Retry-After": "20"}), "answered 503"),
        (reset, ""),
        (None, ""),
    ],
    ids=["502", "503", "reset", "refused"],
)
async def test_a_turn_whose_worker_is_dead_moves_at_once(
    how: Any, reason: str, streamed: bool, waits: list[float]
) -> None:
    """Case 41, sglang#14532: a failing worker kept what was sent to it. It moves with `retries=0`, too."""
    events: list[Event] = []
    async with ScriptedServer(how) as dead, ScriptedServer() as other:
        urls = [dead.url, other.url]
        key = a_key_at(dead.url, urls)
        options: Any = {"cs": 1, "ce": 1, "base_url": urls, "run": "r", "retries": 0, "on_event": events.append}
        async with AgentBatch(**options) as batch:
            if how is None:
                await dead.__aexit__(None, None, None)
            async with batch.trajectory(key) as trajectory:
                reply = await trajectory.client.chat.completions.create(**ASK, stream=streamed)
                if streamed:
                    chunks = [chunk async for chunk in reply]
                    assert chunks[0].choices[0].delta.content == "done"
            statistics = batch.statistics()
            assert statistics.workers[dead.url].live is False
            assert (statistics.workers[dead.url].attempts_failed, statistics.workers[dead.url].outages) == (1, 1)
            assert statistics.workers[other.url].turns_completed == 1
            assert in_flight(batch) == {dead.url: 0, other.url: 0}
    assert waits == []
    [failed] = attempts(events)
    assert (failed.worker, failed.attempt, failed.retry_in_s) == (dead.url, 1, 0.0)
    [turn] = turns(events)
    assert (turn.outcome, turn.attempts, turn.worker) == ("ok", 2, other.url)
    [change] = [one for one in events if isinstance(one, WorkerChanged)]
    assert (change.worker, change.live) == (dead.url, False)
    assert reason in change.reason
    [notice] = [one for one in events if isinstance(one, Notice)]
    assert notice.kind == "worker-out"
    assert dead.url in notice.message


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Answer(status=500), openai.InternalServerError),
        (Answer(status=504), openai.InternalServerError),
        (Answer(status=429), openai.RateLimitError),
        (Answer(status=400), openai.BadRequestError),
        (Answer(delay_s=30), openai.APITimeoutError),
    ],
    ids=["500", "504", "429", "400", "slow"],
)
async def test_what_is_answered_or_only_slow_leaves_its_worker_in(
    answer: Answer, error: type[Exception], waits: list[float]
) -> None:
    events: list[Event] = []
    async with ScriptedServer(lambda _: answer) as a, ScriptedServer(lambda _: answer) as b:
        options: Any = {"cs": 1, "ce": 1, "base_url": [a.url, b.url], "retries": 0, "on_event": events.append}
        async with AgentBatch(**options) as batch, batch.trajectory("k") as trajectory:
            with pytest.raises(error):
                await trajectory.client.with_options(timeout=0.05).chat.completions.create(**ASK)
            assert all(worker.live for worker in batch.statistics().workers.values())
    assert changes(events) == []
    assert len(a.received) + len(b.received) == 1


async def test_an_only_worker_is_never_out(waits: list[float]) -> None:
    events: list[Event] = []
    async with (
        ScriptedServer(answering(status=503)) as server,
        AgentBatch(cs=1, ce=1, base_url=server.url, on_event=events.append) as batch,
        batch.trajectory("k") as trajectory,
    ):
        with pytest.raises(openai.InternalServerError):
            await trajectory.client.chat.completions.create(**ASK)
        [worker] = batch.statistics().workers.values()
        assert (worker.live, worker.attempts_failed, worker.outages) == (True, 3, 0)
    assert changes(events) == []
    assert len(waits) == 2


async def read_chunks(completions: Any, into: list[Any]) -> None:
    async for chunk in await completions.create(**ASK, stream=True):
        into.append(chunk)


async def read_lines(completions: Any, into: list[Any]) -> None:
    async with completions.with_streaming_response.create(**ASK, stream=True) as response:
        async for line in response.iter_lines():
            into += [line] if line else []


@pytest.mark.parametrize("raw", [False, True])
async def test_a_stream_cut_half_way_is_an_error_and_never_a_short_answer(
    raw: bool, waits: list[float], quick_polls: None
) -> None:
    """Case 41: what the caller has begun to read is not sent again; but the worker is out for the others."""
    events: list[Event] = []
    async with ScriptedServer(answering(text="a b c d", cut_after=2)) as dying, ScriptedServer() as other:
        urls = [dying.url, other.url]
        dying.health = 503
        options: Any = {"cs": 1, "ce": 1, "base_url": urls, "run": "r", "on_event": events.append}
        async with AgentBatch(**options) as batch, batch.trajectory(a_key_at(dying.url, urls)) as trajectory:
            pieces: list[Any] = []
            with pytest.raises(Exception):  # noqa: B017, PT011 - whichever the SDK's version raises
                await (read_lines if raw else read_chunks)(trajectory.client.chat.completions, pieces)
            assert len(pieces) == 2
            assert batch.statistics().workers[dying.url].live is False
            await trajectory.client.chat.completions.create(**ASK)
            assert in_flight(batch) == {dying.url: 0, other.url: 0}
        assert (len(dying.received), len(other.received)) == (1, 1)
    assert [(turn.outcome, turn.worker, turn.attempts) for turn in turns(events)] == [
        ("failed", dying.url, 1),
        ("ok", other.url, 1),
    ]
    assert changes(events) == [False]


@pytest.mark.parametrize(
    ("how", "error"), [(answering(status=503), openai.InternalServerError), (reset, openai.APIConnectionError)]
)
async def test_with_all_workers_out_a_turn_fails_for_its_true_reason(
    how: Any, error: type[Exception], waits: list[float], quick_polls: None
) -> None:
    events: list[Event] = []
    async with ScriptedServer(how) as a, ScriptedServer(how) as b, ScriptedServer(how) as c:
        servers = [a, b, c]
        for server in servers:
            server.health = 503
        options: Any = {"cs": 1, "ce": 1, "base_url": [one.url for one in servers], "on_event": events.append}
        async with AgentBatch(**options, retries=1) as batch:
            for _ in range(2):
                with pytest.raises(error):
                    async with batch.trajectory("k") as trajectory:
                        await trajectory.client.chat.completions.create(**ASK)
            assert [worker.live for worker in batch.statistics().workers.values()] == [False] * 3
            for server in servers:
                server.health = 200
            await until(lambda: all(worker.live for worker in batch.statistics().workers.values()))
            assert set(in_flight(batch).values()) == {0}
    # the first turn leaves two workers at once and then uses its retry; the second has nowhere to go
    assert [one.retry_in_s == 0 for one in attempts(events)] == [True, True, False, False, False, False]
    assert [one.retry_in_s is None for one in attempts(events)] == [False] * 3 + [True, False, True]
    assert [turn.attempts for turn in turns(events)] == [4, 2]
    assert len(waits) == 2
    assert sorted(changes(events)) == [False] * 3 + [True] * 3


@pytest.mark.skipif(
    "content" not in inspect.signature(openai.AsyncOpenAI.post).parameters, reason="openai 3 brought bodies as bytes"
)
async def test_a_body_that_cannot_be_sent_twice_does_not_move(waits: list[float]) -> None:
    async with ScriptedServer(reset) as a, ScriptedServer(reset) as b:
        options: Any = {"cs": 1, "ce": 1, "base_url": [a.url, b.url]}
        async with AgentBatch(**options) as batch, batch.trajectory("k") as trajectory:
            with pytest.raises(openai.APIConnectionError):
                await trajectory.client.post("/chat/completions", cast_to=object, content=b"{}")
            assert sorted(worker.live for worker in batch.statistics().workers.values()) == [False, True]
        assert len(a.received) + len(b.received) == 1
