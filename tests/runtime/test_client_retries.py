"""Retries: bounded, spread out, and never at the expense of anybody's slot."""

from types import SimpleNamespace

import anyio
import anyio.lowlevel
import openai
import pytest
from runtime_helpers import ASK, attempts, in_order, turns, until

from agentbatch import AgentBatch
from agentbatch.events import Event
from agentbatch.runtime import retry
from agentbatch.testing import Answer, Received, ScriptedServer

pytestmark = pytest.mark.asyncio


async def test_no_slot_and_no_worker_is_held_during_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """deer-flow#4294: retries held the scarce slot."""
    seen = []

    async def sleep(seconds: float) -> None:
        statistics = batch.statistics()
        seen.append((statistics.environment["default"].held, statistics.turns_in_flight, statistics.admission.held))

    monkeypatch.setattr(retry, "anyio", SimpleNamespace(sleep=sleep))
    async with (
        ScriptedServer(in_order(Answer(status=503), Answer(status=500), Answer())) as server,
        AgentBatch(cs=1, ce=1, base_url=server.url) as batch,
        batch.trajectory("k") as trajectory,
    ):
        await trajectory.act(anyio.lowlevel.checkpoint)
        await trajectory.client.chat.completions.create(**ASK)
    assert seen == [(0, 0, 1), (0, 0, 1)]


async def test_clients_refused_together_come_back_spread_out(waits: list[float]) -> None:
    """hermes#109234, mcp-atlas PR#5: identical back-off sent them all back at once."""
    refused: set[str] = set()

    def script(received: Received) -> Answer:
        label = received.headers["x-smg-routing-key"]
        if label in refused:
            return Answer()
        refused.add(label)
        return Answer(status=429)

    async with ScriptedServer(script) as server, AgentBatch(cs=200, ce=1, base_url=server.url) as batch:
        results = await batch.map(lambda t, _: t.client.chat.completions.create(**ASK), range(200))
        assert all(result.ok for result in results)
    assert len(waits) == 200
    tenths = [sum(low / 10 <= wait < (low + 1) / 10 for wait in waits) for low in range(10)]
    assert max(tenths) <= 60  # of 200, where a fair share is 21
    assert sum(tenths) == 200
    assert len(set(waits)) > 190


@pytest.mark.parametrize(
    ("header", "low", "high"),
    [("3", 3.0, 3.75), ("0.5", 0.5, 0.625), ("100000", 30.0, 37.5)]
    + [(nonsense, 0.05, 1.0) for nonsense in ("0", "-1", "soon", "nan")],
)  # fmt: skip
async def test_retry_after_is_honoured_where_it_makes_sense(
    header: str, low: float, high: float, waits: list[float]
) -> None:
    script = in_order(Answer(status=429, headers={"Retry-After": header}), Answer())
    async with (
        ScriptedServer(script) as server,
        AgentBatch(cs=1, ce=1, base_url=server.url) as batch,
        batch.trajectory("k") as trajectory,
    ):
        await trajectory.client.chat.completions.create(**ASK)
    [wait] = waits
    assert low <= wait <= high


async def test_what_will_not_mend_ends_the_retries(waits: list[float]) -> None:
    """tau2#360: a context-overflow 400 was retried; here it comes second."""
    events: list[Event] = []
    script = in_order(Answer(status=500), Answer(status=400, text="context is full"), Answer())
    async with (
        ScriptedServer(script) as server,
        AgentBatch(cs=1, ce=1, base_url=server.url, on_event=events.append, retries=5) as batch,
        batch.trajectory("k") as trajectory,
    ):
        with pytest.raises(openai.BadRequestError, match="context is full"):
            await trajectory.client.chat.completions.create(**ASK)
        assert trajectory.progress.turns == 0
        assert batch.statistics().attempts_failed == 2
    assert [(one.attempt, one.status, one.retry_in_s is None) for one in attempts(events)] == [
        (1, 500, False),
        (2, 400, True),
    ]
    assert [(turn.outcome, turn.attempts) for turn in turns(events)] == [("failed", 2)]


async def test_a_connection_cut_before_the_reply_is_tried_again(waits: list[float]) -> None:
    def script(received: Received) -> Answer:
        if len(server.received) == 1:
            raise ConnectionResetError  # no answer at all
        return Answer()

    events: list[Event] = []
    async with (
        ScriptedServer(script) as server,
        AgentBatch(cs=1, ce=1, base_url=server.url, on_event=events.append) as batch,
        batch.trajectory("k") as trajectory,
    ):
        await trajectory.client.chat.completions.create(**ASK)
        assert trajectory.usage.attempts_failed == 1
    [turn] = turns(events)
    assert (turn.outcome, turn.attempts) == ("ok", 2)
    assert attempts(events)[0].status is None


async def test_a_stream_is_retried_until_it_begins_and_never_after(waits: list[float]) -> None:
    events: list[Event] = []
    script = in_order(Answer(status=500), Answer(text="a b c", cut_after=1), Answer())
    async with (
        ScriptedServer(script) as server,
        AgentBatch(cs=1, ce=1, base_url=server.url, on_event=events.append) as batch,
        batch.trajectory("k") as trajectory,
    ):
        stream = await trajectory.client.chat.completions.create(**ASK, stream=True)
        assert (await anext(stream)).choices[0].delta.content == "a"
        with pytest.raises(Exception):  # noqa: B017, PT011 - whichever the SDK's version raises
            await anext(stream)
        assert len(server.received) == 2
    assert [(turn.outcome, turn.attempts) for turn in turns(events)] == [("failed", 2)]


async def test_cancelled_in_back_off_the_turn_is_cancelled_not_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Event] = []
    sleeping = anyio.Event()

    async def sleep(seconds: float) -> None:
        sleeping.set()
        await anyio.sleep_forever()

    monkeypatch.setattr(retry, "anyio", SimpleNamespace(sleep=sleep))
    async with (
        ScriptedServer(lambda received: Answer(status=500)) as server,
        AgentBatch(cs=1, ce=1, base_url=server.url, on_event=events.append) as batch,
        batch.trajectory("k") as trajectory,
    ):
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: trajectory.client.chat.completions.create(**ASK))
            await sleeping.wait()
            group.cancel_scope.cancel()
        assert batch.statistics().turns_in_flight == 0
        assert len(server.received) == 1
    assert [(turn.outcome, turn.attempts) for turn in turns(events)] == [("cancelled", 1)]


async def test_retries_end_when_their_time_is_up(waits: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "MAX_TOTAL_S", 0.0)
    async with (
        ScriptedServer(lambda received: Answer(status=500)) as server,
        AgentBatch(cs=1, ce=1, base_url=server.url, retries=50) as batch,
        batch.trajectory("k") as trajectory,
    ):
        with pytest.raises(openai.InternalServerError):
            await trajectory.client.chat.completions.create(**ASK)
        assert len(server.received) == 1


async def test_a_slow_reply_times_out_and_is_tried_again(waits: list[float]) -> None:
    events: list[Event] = []
    script = in_order(Answer(delay_s=30), Answer())
    async with (
        ScriptedServer(script) as server,
        AgentBatch(cs=1, ce=1, base_url=server.url, timeout_s=0.05, on_event=events.append) as batch,
        batch.trajectory("k") as trajectory,
    ):
        await trajectory.client.with_options(timeout=0.05).chat.completions.create(**ASK)
        await until(lambda: len(server.received) == 2)
    assert "Timeout" in attempts(events)[0].error
    assert turns(events)[0].attempts == 2
