"""Streams in threads: every way to read one, and every way it ends, is exactly one turn."""

import threading
from typing import Any

import pytest
from runtime_helpers import ASK, turns
from sync_helpers import Served, served, wait_until

from agentbatch import RetryPolicy, SyncAgentBatch, TurnTimeout
from agentbatch.events import Event
from agentbatch.testing import Answer, Received


def plain_stream(client: Any) -> int:
    return len(list(client.chat.completions.create(**ASK, stream=True)))


def helper(client: Any) -> int:
    with client.chat.completions.stream(**ASK) as stream:
        return len([event for event in stream if event.type == "chunk"])


def raw_parsed(client: Any) -> int:
    return len(list(client.chat.completions.with_raw_response.create(**ASK, stream=True).parse()))


def streaming_parsed(client: Any) -> int:
    with client.chat.completions.with_streaming_response.create(**ASK, stream=True) as response:
        return len(list(response.parse()))


def streaming_lines(client: Any) -> int:
    with client.chat.completions.with_streaming_response.create(**ASK, stream=True) as response:
        return len([line for line in response.iter_lines() if line.startswith("data: {")])


def streaming_text(client: Any) -> int:
    with client.chat.completions.with_streaming_response.create(**ASK, stream=True) as response:
        return response.text().count("data: {")


def legacy_stream(client: Any) -> int:
    return len(list(client.completions.create(model="m", prompt="hello", stream=True)))


def responses_stream(client: Any) -> int:
    return len(list(client.responses.create(model="m", input="hello", stream=True)))


READERS = [
    plain_stream, helper, raw_parsed, streaming_parsed, streaming_lines, streaming_text, legacy_stream,
    responses_stream,
]  # fmt: skip


@pytest.mark.parametrize("read", READERS)
def test_a_stream_read_to_its_end_is_one_turn(four_words: Served, read: Any) -> None:
    events: list[Event] = []
    with SyncAgentBatch(cs=1, ce=1, base_url=four_words.url, on_event=events.append) as batch:
        with batch.trajectory("k") as trajectory:
            assert read(trajectory.client) == 5  # four words and the end; nobody asked for a usage chunk
        [turn] = turns(events)
    assert (turn.outcome, turn.attempts, turn.streamed) == ("ok", 1, True)
    assert turn.first_byte_s is not None
    assert turn.started_s <= turn.first_byte_s <= turn.ended_s
    # bytes that go to the caller as they are do not get a chunk that was not asked for
    counted = read not in (streaming_parsed, streaming_lines, streaming_text)
    assert turn.prompt_tokens == (8 if counted else None) or read is responses_stream


def test_a_caller_who_asks_for_the_usage_chunk_gets_it(four_words: Served) -> None:
    with SyncAgentBatch(cs=1, ce=1, base_url=four_words.url) as batch, batch.trajectory("k") as trajectory:
        stream = trajectory.client.chat.completions.create(**ASK, stream=True, stream_options={"include_usage": True})
        assert [chunk.usage.prompt_tokens for chunk in stream if chunk.usage] == [8]


def broken_off(client: Any) -> None:
    for _ in client.chat.completions.create(**ASK, stream=True):
        break


def closed(client: Any) -> None:
    with client.chat.completions.create(**ASK, stream=True) as stream:
        next(stream)


def never_begun(client: Any) -> None:
    client.chat.completions.create(**ASK, stream=True)


def raw_not_read(client: Any) -> None:
    with client.chat.completions.with_streaming_response.create(**ASK, stream=True):
        pass


@pytest.mark.parametrize("leave", [broken_off, closed, never_begun, raw_not_read])
def test_fifty_streams_left_early_leave_no_connection(leave: Any) -> None:
    events: list[Event] = []
    with served(lambda received: Answer(text="a b c d", stall_after=2)) as server:
        with SyncAgentBatch(cs=50, ce=1, base_url=server.url, on_event=events.append) as batch:
            results = batch.map(lambda trajectory, task: leave(trajectory.client), range(50))
            assert all(result.ok for result in results)
            assert [turn.outcome for turn in turns(events)] == ["ok"] * 50
            assert batch.statistics().turns_in_flight == 0
        wait_until(lambda: server.server.connections == 0)


def test_a_stream_read_by_another_thread_ends_with_its_trajectory() -> None:
    events: list[Event] = []
    errors: list[BaseException] = []
    begun = threading.Event()

    def read(stream: Any) -> None:
        try:
            for _ in stream:
                begun.set()
        except BaseException as error:
            errors.append(error)

    with (
        served(lambda received: Answer(text="a b c d", stall_after=2)) as server,
        SyncAgentBatch(cs=1, ce=1, base_url=server.url, on_event=events.append) as batch,
    ):
        with batch.trajectory("k") as trajectory:
            stream = trajectory.client.chat.completions.create(**ASK, stream=True)
            reader = threading.Thread(target=read, args=(stream,))
            reader.start()
            begun.wait()
        reader.join(10)
        assert not reader.is_alive()
        assert len(errors) == 1
        wait_until(lambda: len(turns(events)) == 1)
        assert turns(events)[0].outcome == "failed"


@pytest.mark.parametrize(
    "cut", [pytest.param({"cut_after": 2}, id="cut"), pytest.param({"fail_after": 2}, id="error-event")]
)
def test_a_stream_that_fails_half_way_is_not_tried_again(cut: Any) -> None:
    events: list[Event] = []
    with (
        served(lambda received: Answer(text="a b c d", **cut)) as server,
        SyncAgentBatch(cs=1, ce=1, base_url=server.url, on_event=events.append) as batch,
    ):
        with batch.trajectory("k") as trajectory, pytest.raises(Exception):  # noqa: B017, PT011 - as the SDK has it
            list(trajectory.client.chat.completions.create(**ASK, stream=True))
        [turn] = turns(events)
        assert (turn.outcome, turn.attempts) == ("failed", 1)
        assert len(server.labels) == 1


def test_a_turn_does_not_outlive_its_time_out() -> None:
    events: list[Event] = []
    options: Any = {"turn_timeout_s": 0.05, "retries": RetryPolicy(attempts=9, first_wait_s=0.001)}


    def slow(received: Received) -> Answer:
        return Answer(text="a b", stall_after=1, delay_s=0 if received.body.get("stream") else 5)

    with (
        served(slow) as server,
        SyncAgentBatch(cs=1, ce=1, base_url=server.url, on_event=events.append, **options) as batch,
        batch.trajectory("k") as trajectory,
    ):
        with pytest.raises(TurnTimeout, match="turn_timeout_s"):
            trajectory.client.chat.completions.create(**ASK)
        with pytest.raises(Exception):  # noqa: B017, PT011 - the SDK's, which differs between its versions
            list(trajectory.client.chat.completions.create(**ASK, stream=True))
        assert trajectory.usage.timeouts == 2
    assert [(turn.outcome, turn.timed_out) for turn in turns(events)] == [("failed", True)] * 2
