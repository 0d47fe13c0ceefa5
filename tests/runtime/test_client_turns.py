"""The labelled client over real HTTP: labels, turns, streams, raw responses, retries."""

from typing import Any

import anyio
import openai
import pytest
from runtime_helpers import ASK, attempts, in_flight, in_order, turns

from agentbatch import AgentBatch, TrajectoryClosed
from agentbatch.events import Event
from agentbatch.testing import Answer, ScriptedServer
from agentbatch.wire import ROUTING_KEY_HEADER

pytestmark = pytest.mark.asyncio


async def test_every_kind_of_call_carries_the_label_and_counts_once() -> None:
    events: list[Event] = []
    async with (
        ScriptedServer() as server,
        AgentBatch(cs=1, ce=1, base_url=server.url, run="r", on_event=events.append) as batch,
    ):
        async with batch.trajectory("k") as trajectory:
            client = trajectory.client
            assert (await client.chat.completions.create(**ASK)).choices[0].message.content == "done"
            await client.completions.create(model="m", prompt="hello")
            assert (await client.responses.create(model="m", input="hello")).output_text == "done"
            raw = await client.chat.completions.with_raw_response.create(**ASK)
            assert raw.parse().choices[0].message.content == "done"
            async with client.chat.completions.with_streaming_response.create(**ASK) as response:
                assert (await response.parse()).choices[0].message.content == "done"
            await client.with_options(timeout=5, default_headers={"X-Mine": "1"}).chat.completions.create(**ASK)
            await client.chat.completions.create(**ASK, extra_headers={ROUTING_KEY_HEADER: "forged"})
        assert {one.headers[ROUTING_KEY_HEADER.lower()] for one in server.received} == {"r-k"}
        assert server.received[5].headers["x-mine"] == "1"
    assert len(turns(events)) == len(server.received) == 7
    assert [turn.outcome for turn in turns(events)] == ["ok"] * 7
    assert [turn.prompt_tokens for turn in turns(events)[:4]] == [8, 8, 8, 8]
    assert [turn.cached_tokens for turn in turns(events)[:4]] == [6, 6, 6, 6]
    assert {turn.endpoint for turn in turns(events)} == {"/chat/completions", "/completions", "/responses"}


async def test_two_trajectories_never_share_a_label() -> None:
    """ThunderAgent: a missing id became a shared default."""
    async with ScriptedServer() as server, AgentBatch(cs=9, ce=1, base_url=server.url) as batch:

        async def solve(trajectory: Any, task: None) -> None:
            await trajectory.client.chat.completions.create(**ASK)

        await batch.map(solve, [None] * 5)  # unnamed tasks
        await batch.map(solve, [None] * 5)  # and the same again
    assert len({one.headers[ROUTING_KEY_HEADER.lower()] for one in server.received}) == 10


async def test_the_server_sees_exactly_cs_requests_at_once() -> None:
    """inspect_ai#847, NeMo-RL#3590: a hidden cap of 100."""
    async with ScriptedServer(delay_s=0.3) as server, AgentBatch(cs=300, ce=1, base_url=server.url) as batch:

        async def solve(trajectory: Any, n: int) -> None:
            await trajectory.client.chat.completions.create(**ASK)

        results = await batch.map(solve, range(600))
        assert all(result.ok for result in results)
    assert server.peak == 300


async def test_no_environment_slot_is_held_while_the_model_is_asked() -> None:
    """probe#512: the slot was held for the whole session."""
    seen: list[int] = []

    def script(received: Any) -> Answer:
        seen.append(batch.statistics().environment["default"].held)
        return Answer()

    async with ScriptedServer(script) as server, AgentBatch(cs=4, ce=2, base_url=server.url) as batch:

        async def solve(trajectory: Any, n: int) -> None:
            await trajectory.client.chat.completions.create(**ASK)
            await trajectory.act(anyio.sleep, 0)

        await batch.map(solve, [0])
        assert seen == [0]
        async with batch.trajectory("inside") as trajectory, trajectory.environment():
            await trajectory.client.chat.completions.create(**ASK)
        assert seen == [0, 1]
        assert batch.statistics().inference_in_environment == 1
        assert [notice.kind for notice in batch.hub.notices] == ["inference-in-environment"]


@pytest.mark.parametrize("asked", [False, True])
async def test_the_usage_chunk_is_hidden_unless_asked_for(asked: bool) -> None:
    events: list[Event] = []
    async with (
        ScriptedServer(lambda received: Answer(text="a b c")) as server,
        AgentBatch(cs=1, ce=1, base_url=server.url, on_event=events.append) as batch,
        batch.trajectory("k") as trajectory,
    ):
        options = {"stream_options": {"include_usage": True}} if asked else {}
        stream = await trajectory.client.chat.completions.create(**ASK, stream=True, **options)
        assert isinstance(stream, openai.AsyncStream)
        chunks = [chunk async for chunk in stream]
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "abc"
        assert [bool(chunk.choices) for chunk in chunks] == [True] * 4 + ([False] if asked else [])
        assert trajectory.usage.cached_tokens == 6
    [turn] = turns(events)
    assert turn.streamed
    assert turn.first_byte_s is not None
    assert turn.started_s < turn.first_byte_s <= turn.ended_s


async def test_a_stream_ends_its_turn_at_close_or_with_the_trajectory() -> None:
    events: list[Event] = []
    script = lambda received: Answer(text="word " * 200)  # noqa: E731
    async with (
        ScriptedServer(script) as server,
        AgentBatch(cs=1, ce=1, base_url=server.url, on_event=events.append) as batch,
    ):
        async with batch.trajectory("k") as trajectory:
            create = trajectory.client.chat.completions.create
            async with await create(**ASK, stream=True) as stream:
                async for _ in stream:
                    break
                assert len(turns(events)) == 0
            assert len(turns(events)) == 1
            forgotten = await create(**ASK, stream=True)
            async for _ in forgotten:
                break
            raw = await trajectory.client.chat.completions.with_raw_response.create(**ASK, stream=True)
            assert [c async for c in raw.parse() if c.choices]
            assert len(turns(events)) == 2
            assert batch.statistics().turns_in_flight == 1
        assert [turn.outcome for turn in turns(events)] == ["ok"] * 3
        assert batch.statistics().turns_in_flight == 0


async def test_a_stream_that_breaks_is_a_failed_turn() -> None:
    events: list[Event] = []
    script = lambda received: Answer(text="a b c d", cut_after=2)  # noqa: E731
    async with (
        ScriptedServer(script) as server,
        AgentBatch(cs=1, ce=1, base_url=server.url, on_event=events.append) as batch,
        batch.trajectory("k") as trajectory,
    ):
        stream = await trajectory.client.chat.completions.create(**ASK, stream=True)
        with pytest.raises(Exception):  # noqa: B017, PT011 - whichever the SDK's version raises
            [chunk async for chunk in stream]
        assert trajectory.progress.turns == 0
    [turn] = turns(events)
    assert turn.outcome == "failed"
    assert turn.attempts == 1  # after the first byte nothing is tried again


async def test_what_may_succeed_later_is_tried_again_under_one_turn(waits: list[float]) -> None:
    events: list[Event] = []
    script = in_order(Answer(status=500), Answer(status=429, headers={"Retry-After": "7"}), Answer())
    async with (
        ScriptedServer(script) as server,
        AgentBatch(cs=1, ce=1, base_url=server.url, on_event=events.append) as batch,
        batch.trajectory("k") as trajectory,
    ):
        await trajectory.client.chat.completions.create(**ASK)
        assert trajectory.progress.turns == 1
    [turn] = turns(events)
    assert (turn.outcome, turn.attempts) == ("ok", 3)
    assert [(one.attempt, one.status) for one in attempts(events)] == [(1, 500), (2, 429)]
    assert all(one.retry_in_s is not None for one in attempts(events))
    assert {one.worker for one in attempts(events)} == {turn.worker} != {""}
    assert 7.0 <= waits[1] <= 8.75
    assert len({one.headers[ROUTING_KEY_HEADER.lower()] for one in server.received}) == 1


@pytest.mark.parametrize(("status", "tries"), [(400, 1), (401, 1), (404, 1), (422, 1), (503, 3), (408, 3)])
async def test_what_cannot_succeed_is_tried_once(status: int, tries: int, waits: list[float]) -> None:
    """tau2#360: a context-overflow 400 was retried."""
    events: list[Event] = []
    async with (
        ScriptedServer(lambda received: Answer(status=status, text="too long for the context")) as server,
        AgentBatch(cs=1, ce=1, base_url=server.url, on_event=events.append) as batch,
        batch.trajectory("k") as trajectory,
    ):
        with pytest.raises(openai.APIStatusError, match="too long"):
            await trajectory.client.chat.completions.create(**ASK)
    assert len(server.received) == tries
    [turn] = turns(events)
    assert turn.outcome == "failed"
    assert turn.error is not None
    assert "too long" in turn.error
    assert attempts(events)[-1].retry_in_s is None


async def test_the_number_of_tries_is_the_callers(waits: list[float]) -> None:
    async with (
        ScriptedServer(lambda received: Answer(status=500)) as server,
        AgentBatch(cs=1, ce=1, base_url=server.url, retries=0) as batch,
        batch.trajectory("a") as trajectory,
    ):
        with pytest.raises(openai.InternalServerError):
            await trajectory.client.chat.completions.create(**ASK)
        assert len(server.received) == 1
        with pytest.raises(openai.InternalServerError):
            await trajectory.client.with_options(max_retries=4).chat.completions.create(**ASK)
        assert len(server.received) == 6


async def test_the_api_key_reaches_the_server_and_nothing_else(tmp_path: Any, waits: list[float]) -> None:
    key = "sk-very-secret"
    path = tmp_path / "run.jsonl"
    script = lambda received: Answer(status=500, text=f"bad key {key}")  # noqa: E731
    async with (
        ScriptedServer(script) as server,
        AgentBatch(cs=1, ce=1, base_url=server.url, api_key=key, record=path) as batch,
    ):
        [result] = await batch.map(lambda trajectory, _: trajectory.client.chat.completions.create(**ASK), [0])
        assert not result.ok
        assert key not in repr(batch) + repr(batch.statistics()) + repr(batch.options)
    assert server.received[0].headers["authorization"] == f"Bearer {key}"
    assert "[api key]" in path.read_text()
    assert key not in path.read_text()


async def test_closing_the_client_is_harmless_and_it_ends_with_its_trajectory() -> None:
    async with ScriptedServer() as server, AgentBatch(cs=1, ce=1, base_url=server.url) as batch:
        async with batch.trajectory("a") as trajectory:
            client = trajectory.client
            async with client.with_options(timeout=3) as copy:
                await copy.chat.completions.create(**ASK)
            await client.close()
            await client.chat.completions.create(**ASK)
        with pytest.raises(TrajectoryClosed):
            await client.chat.completions.create(**ASK)
        async with batch.trajectory("b") as trajectory:
            await trajectory.client.chat.completions.create(**ASK)
    assert len(server.received) == 3


async def test_turns_spread_over_workers_and_stay_at_home() -> None:
    async with ScriptedServer() as a, ScriptedServer() as b:
        async with AgentBatch(cs=1, ce=1, base_url=[a.url, b.url], run="r") as batch:

            async def solve(trajectory: Any, n: int) -> None:
                for _ in range(3):
                    await trajectory.client.chat.completions.create(**ASK)

            await batch.map(solve, range(16))
            assert in_flight(batch) == {a.url: 0, b.url: 0}
        homes = [{one.headers[ROUTING_KEY_HEADER.lower()] for one in server.received} for server in (a, b)]
        assert homes[0]
        assert homes[1]
        assert not homes[0] & homes[1]
        assert len(a.received) + len(b.received) == 48


async def test_a_turn_cancelled_in_flight_leaves_no_count_behind() -> None:
    events: list[Event] = []
    async with (
        ScriptedServer(delay_s=30) as server,
        AgentBatch(cs=2, ce=1, base_url=server.url, on_event=events.append) as batch,
    ):
        with anyio.move_on_after(0.2):
            await batch.map(lambda trajectory, _: trajectory.client.chat.completions.create(**ASK), range(2))
        assert batch.statistics().turns_in_flight == 0
    assert [turn.outcome for turn in turns(events)] == ["cancelled"] * 2
