"""Streams and raw bodies: every way to read one, and every way it ends, is exactly one turn."""

from typing import Any

import anyio
import pytest
from runtime_helpers import ASK, turns, until

from agentbatch import AgentBatch
from agentbatch.events import Event
from agentbatch.testing import Answer, Received, ScriptedServer

pytestmark = pytest.mark.asyncio


def serve(**answer: Any) -> Any:
    return lambda received: Answer(**{"text": "a b c d", **answer})


async def plain_stream(client: Any) -> int:
    return len([chunk async for chunk in await client.chat.completions.create(**ASK, stream=True)])


async def helper(client: Any) -> int:
    async with client.chat.completions.stream(**ASK) as stream:
        return len([event async for event in stream if event.type == "chunk"])


async def raw_parsed(client: Any) -> int:
    raw = await client.chat.completions.with_raw_response.create(**ASK, stream=True)
    return len([chunk async for chunk in raw.parse()])


async def streaming_parsed(client: Any) -> int:
    async with client.chat.completions.with_streaming_response.create(**ASK, stream=True) as response:
        return len([chunk async for chunk in await response.parse()])


async def streaming_lines(client: Any) -> int:
    async with client.chat.completions.with_streaming_response.create(**ASK, stream=True) as response:
        lines = [line async for line in response.iter_lines() if line.startswith("data: {")]
        assert not any('"error"' in line for line in lines)
        return len(lines)


async def streaming_text(client: Any) -> int:
    async with client.chat.completions.with_streaming_response.create(**ASK, stream=True) as response:
        return (await response.text()).count("data: {")


async def legacy_completions(client: Any) -> int:
    stream = await client.completions.create(model="m", prompt="hello", stream=True)
    return len([chunk async for chunk in stream])


async def responses(client: Any) -> int:
    stream = await client.responses.create(model="m", input="hello", stream=True)
    return len([event async for event in stream])


READERS = [
    plain_stream, helper, raw_parsed, streaming_parsed, streaming_lines, streaming_text, legacy_completions, responses,
]  # fmt: skip


@pytest.mark.parametrize("read", READERS)
async def test_a_stream_read_to_its_end_is_one_turn(read: Any) -> None:
    events: list[Event] = []
    async with (
        ScriptedServer(serve()) as server,
        AgentBatch(cs=1, ce=1, base_url=server.url, on_event=events.append) as batch,
        batch.trajectory("k") as trajectory,
    ):
        assert await read(trajectory.client) == 5  # four words and the end; nobody asked for a usage chunk
        [turn] = turns(events)
        assert (turn.outcome, turn.attempts, turn.streamed) == ("ok", 1, True)
        assert turn.first_byte_s is not None
        assert turn.started_s < turn.first_byte_s <= turn.ended_s
        # bytes that go to the caller as they are do not get a chunk that was not asked for
        counted = read not in (streaming_parsed, streaming_lines, streaming_text)
        assert turn.cached_tokens == (6 if counted else None)
        assert trajectory.usage.turns_without_usage == (0 if counted else 1)
        assert trajectory.progress.turns == 1
        assert batch.statistics().turns_in_flight == 0
        assert not trajectory.open_streams


@pytest.mark.parametrize("read", READERS)
async def test_a_stream_that_is_cut_is_a_failed_turn(read: Any) -> None:
    events: list[Event] = []
    async with (
        ScriptedServer(serve(cut_after=2)) as server,
        AgentBatch(cs=1, ce=1, base_url=server.url, on_event=events.append) as batch,
        batch.trajectory("k") as trajectory,
    ):
        with pytest.raises(Exception):  # noqa: B017, PT011 - whichever the SDK's version raises
            await read(trajectory.client)
        [turn] = turns(events)
        assert (turn.outcome, turn.attempts) == ("failed", 1)
        assert turn.error
        assert trajectory.progress.turns == 0
        assert batch.statistics().turns_in_flight == 0


@pytest.mark.parametrize("read", [plain_stream, helper, raw_parsed, streaming_parsed])
async def test_an_error_event_in_a_stream_is_a_failed_turn(read: Any) -> None:
    events: list[Event] = []
    async with (
        ScriptedServer(serve(text="out of memory", fail_after=1)) as server,
        AgentBatch(cs=1, ce=1, base_url=server.url, on_event=events.append) as batch,
        batch.trajectory("k") as trajectory,
    ):
        with pytest.raises(Exception, match="out of memory"):
            await read(trajectory.client)
        [turn] = turns(events)
        assert turn.outcome == "failed"
        assert "out of memory" in (turn.error or "")


@pytest.mark.parametrize("raw", [False, True])
async def test_leaving_a_stream_early_ends_its_turn_and_frees_its_connection(raw: bool) -> None:
    events: list[Event] = []
    async with (
        ScriptedServer(serve(stall_after=2)) as server,
        AgentBatch(cs=1, ce=1, base_url=server.url, on_event=events.append) as batch,
        batch.trajectory("k") as trajectory,
    ):
        completions = trajectory.client.chat.completions
        if raw:
            async with completions.with_streaming_response.create(**ASK, stream=True) as response:
                async for _ in response.iter_lines():
                    break
        else:
            async with completions.stream(**ASK) as stream:  # the SDK's helper closes the response, not the stream
                async for _ in stream:
                    break
        [turn] = turns(events)
        assert turn.outcome == "ok"
        assert batch.statistics().turns_in_flight == 0
        await until(lambda: server.in_flight == 0)


@pytest.mark.parametrize("read", [plain_stream, helper, raw_parsed, streaming_parsed, streaming_lines])
async def test_a_stream_cancelled_half_way_frees_its_connection_at_once(read: Any) -> None:
    """The server would otherwise generate on for nobody, as it did under openai 2."""
    events: list[Event] = []
    async with (
        ScriptedServer(serve(stall_after=2)) as server,
        AgentBatch(cs=1, ce=1, base_url=server.url, on_event=events.append) as batch,
        batch.trajectory("k") as trajectory,
    ):
        async with anyio.create_task_group() as group:
            group.start_soon(read, trajectory.client)
            await until(lambda: server.in_flight == 1)
            await anyio.sleep(0.03)  # into the body, most likely; right either way
            group.cancel_scope.cancel()
        [turn] = turns(events)
        assert turn.outcome == "cancelled"
        assert batch.statistics().turns_in_flight == 0
        await until(lambda: server.in_flight == 0)
        await trajectory.client.with_options(timeout=5).models.list()  # the pool still works


async def test_streams_left_open_end_with_their_trajectory_even_a_cancelled_one() -> None:
    events: list[Event] = []
    async with (
        ScriptedServer(serve(stall_after=1)) as server,
        AgentBatch(cs=2, ce=1, base_url=server.url, on_event=events.append) as batch,
    ):

        async def solve(trajectory: Any, n: int) -> None:
            for _ in range(2):
                stream = await trajectory.client.chat.completions.create(**ASK, stream=True)
                await anext(stream)
            if n:
                trajectory.cancel()
                await anyio.sleep(10)

        results = await batch.map(solve, range(2))
        assert [result.ok for result in results] == [True, False]
        assert len(turns(events)) == 4
        await until(lambda: server.in_flight == 0)
        assert batch.statistics().turns_in_flight == 0


async def test_a_stream_that_does_not_close_neatly_changes_no_result() -> None:
    async with AgentBatch(cs=1, ce=1) as batch:

        async def solve(trajectory: Any, n: int) -> str:
            async def close() -> None:
                raise OSError("reset by peer")

            trajectory.open_streams[object()] = close
            return "done"

        [result] = await batch.map(solve, [0])
        assert result.ok
        assert result.value == "done"


async def test_a_plain_reply_read_late_is_timed_to_its_last_byte_with_usage() -> None:
    events: list[Event] = []
    async with (
        ScriptedServer() as server,
        AgentBatch(cs=1, ce=1, base_url=server.url, on_event=events.append) as batch,
        batch.trajectory("k") as trajectory,
    ):
        create = trajectory.client.chat.completions.with_streaming_response.create
        async with create(**ASK) as response:
            assert turns(events) == []
            assert (await response.parse()).choices[0].message.content == "done"
            assert len(turns(events)) == 1
        async with create(**ASK):
            pass  # not read at all
        read, unread = turns(events)
        assert (read.outcome, read.prompt_tokens, read.streamed, read.first_byte_s) == ("ok", 8, False, None)
        assert (unread.outcome, unread.prompt_tokens) == ("ok", None)


async def test_a_stream_asked_for_usage_reports_it_and_one_without_any_is_counted_as_unknown() -> None:
    def script(received: Received) -> Answer:
        assert received.body["stream_options"] == {"include_usage": True}
        return Answer(usage=None)

    async with (
        ScriptedServer(script) as server,
        AgentBatch(cs=1, ce=1, base_url=server.url) as batch,
        batch.trajectory("k") as trajectory,
    ):
        await plain_stream(trajectory.client)
        assert (trajectory.usage.turns, trajectory.usage.turns_without_usage) == (1, 1)
        assert trajectory.usage.prompt_tokens == 0
