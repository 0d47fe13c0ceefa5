"""Retries: bounded, spread out, and never at the expense of anybody's slot."""

import itertools
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import openai
import pytest
from runtime_helpers import ASK, attempts, in_order, turns, until

from agentbatch import AgentBatch, RetryPolicy, UsageError
from agentbatch.events import Event, Notice
from agentbatch.runtime import retry
from agentbatch.testing import Answer, Received, ScriptedServer

pytestmark = pytest.mark.asyncio
IN_FIVE_MINUTES = "a date, made when the test runs"


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
    tenths = [sum(low / 10 <= wait < (low + 1) / 10 for wait in waits) for low in range(5, 15)]
    assert max(tenths) <= 60  # of 200, where a fair share is 20
    assert sum(tenths) == 200
    assert len(set(waits)) > 190


async def test_clients_told_the_same_retry_after_come_back_spread_out(waits: list[float]) -> None:
    """hermes#109234: a Retry-After of two seconds, given to all, would be the next stampede."""
    refused: set[str] = set()

    def script(received: Received) -> Answer:
        label = received.headers["x-smg-routing-key"]
        first = label not in refused
        refused.add(label)
        return Answer(status=429, headers={"Retry-After": "2"}) if first else Answer()

    async with ScriptedServer(script) as server, AgentBatch(cs=200, ce=1, base_url=server.url) as batch:
        assert all(one.ok for one in await batch.map(lambda t, _: t.client.chat.completions.create(**ASK), range(200)))
    fifths = [sum(2 + at / 5 <= wait < 2 + (at + 1) / 5 for wait in waits) for at in range(5)]
    assert sum(fifths) == 200
    assert max(fifths) <= 80  # where a fair share is 40


async def test_waits_grow_and_differ_under_a_ceiling() -> None:
    policy = RetryPolicy(first_wait_s=1.0, most_wait_s=20.0)
    last, waits = None, []
    for _ in range(200):
        last = policy.wait_s(None, last)
        waits.append(last)
    assert 1.0 <= waits[0] <= 3.0
    assert max(waits) == 20.0
    assert all(1.0 <= after <= max(3.0, 3 * before) for before, after in itertools.pairwise(waits))
    assert len({round(wait, 6) for wait in waits}) > 30


@pytest.mark.parametrize(
    ("header", "low", "high"),
    [
        ({"Retry-After": "3"}, 3.0, 4.0),
        ({"Retry-After": "0.5"}, 0.5, 1.5),
        ({"Retry-After": "100"}, 100.0, 125.0),
        ({"retry-after-ms": "2500"}, 2.5, 3.5),
        ({"Retry-After": IN_FIVE_MINUTES}, 280.0, 375.0),
        *(({"Retry-After": nonsense}, 0.5, 1.5) for nonsense in ("0", "-1", "soon", "nan", "inf")),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.5, 1.5),
        ({"Retry-After": f"Wed, 21 Oct 2015 07:28:00 +{'9' * 20}"}, 0.5, 1.5),
    ],
)
async def test_retry_after_is_honoured_where_it_makes_sense(
    header: dict[str, str], low: float, high: float, waits: list[float]
) -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=300), usegmt=True)
    header = {name: later if text == IN_FIVE_MINUTES else text for name, text in header.items()}
    script = in_order(Answer(status=429, headers=header), Answer())
    async with (
        ScriptedServer(script) as server,
        AgentBatch(cs=1, ce=1, base_url=server.url) as batch,
        batch.trajectory("k") as trajectory,
    ):
        await trajectory.client.chat.completions.create(**ASK)
    [wait] = waits
    assert low <= wait <= high


async def test_a_retry_after_beyond_the_time_for_the_call_fails_it_and_says_so(waits: list[float]) -> None:
    events: list[Event] = []
    script = in_order(Answer(status=429, headers={"Retry-After": "3600"}), Answer())
    async with (
        ScriptedServer(script) as server,
        AgentBatch(cs=1, ce=1, base_url=server.url, on_event=events.append) as batch,
        batch.trajectory("k") as trajectory,
    ):
        with pytest.raises(openai.RateLimitError):
            await trajectory.client.chat.completions.create(**ASK)
    assert waits == []
    assert [one.retry_in_s for one in attempts(events)] == [None]
    [notice] = [event for event in events if isinstance(event, Notice)]
    assert (notice.kind, "3,600 s" in notice.message, "within_s" in notice.message) == ("retry-after", True, True)


@pytest.mark.parametrize(("told", "status", "tries"), [("true", 400, 2), ("false", 503, 1), ("perhaps", 503, 2)])
async def test_the_server_may_say_whether_to_try_again(told: str, status: int, tries: int, waits: list[float]) -> None:
    script = in_order(Answer(status=status, headers={"x-should-retry": told}), Answer())
    async with (
        ScriptedServer(script) as server,
        AgentBatch(cs=1, ce=1, base_url=server.url) as batch,
        batch.trajectory("k") as trajectory,
    ):
        if tries == 1:
            with pytest.raises(openai.InternalServerError):
                await trajectory.client.chat.completions.create(**ASK)
        else:
            await trajectory.client.chat.completions.create(**ASK)
        assert len(server.received) == tries


@pytest.mark.parametrize(("status", "tries"), [(429, 4), (418, 4), (500, 1), (404, 1), (400, 1)])
async def test_what_is_retried_and_how_often_is_the_policys(status: int, tries: int, waits: list[float]) -> None:
    policy = RetryPolicy(attempts=4, statuses=frozenset({429, 418}))
    async with (
        ScriptedServer(lambda received: Answer(status=status)) as server,
        AgentBatch(cs=1, ce=1, base_url=server.url, retries=policy) as batch,
        batch.trajectory("k") as trajectory,
    ):
        with pytest.raises(openai.APIStatusError):
            await trajectory.client.chat.completions.create(**ASK)
        assert len(server.received) == tries


@pytest.mark.parametrize(
    "wrong",
    [{"attempts": 0}, {"attempts": True}, {"attempts": 1.5}, {"within_s": 0}, {"within_s": float("inf")},
     {"first_wait_s": 0}, {"first_wait_s": 31.0}, {"most_wait_s": float("nan")}, {"within_s": "9"},
     {"most_wait_s": None}, {"statuses": 503}],
)  # fmt: skip
async def test_a_policy_that_cannot_be_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        RetryPolicy(**wrong)
    assert RetryPolicy(statuses=[503]).statuses == {503}  # type: ignore[arg-type]


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


async def test_retries_end_when_their_time_is_up(waits: list[float]) -> None:
    policy = RetryPolicy(attempts=50, within_s=0.4)
    async with (
        ScriptedServer(lambda received: Answer(status=500)) as server,
        AgentBatch(cs=1, ce=1, base_url=server.url, retries=policy) as batch,
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
