"""Time-outs of turns: over all attempts, streams and raw bodies too; what is one and what is not."""

from typing import Any

import anyio
import anyio.lowlevel
import openai
import pytest
from runtime_helpers import ASK, attempts, in_order, turns

from agentbatch import (
    AgentBatch,
    TurnTimeout,
)
from agentbatch.events import Event
from agentbatch.testing import Answer, ScriptedServer
from agentbatch.trace import summarize

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


@pytest.mark.parametrize("streamed", [False, True])
def test_a_turn_times_out_over_all_its_attempts(streamed: bool) -> None:
    events: list[Event] = []
    slow = Answer(delay_s=30) if not streamed else Answer(text="a b c", stall_after=1)
    script = in_order(Answer(status=500, headers={"retry-after-ms": "1"}), slow, Answer())

    async def main() -> None:
        async with (
            ScriptedServer(script) as server,
            AgentBatch(cs=1, ce=1, base_url=server.url, turn_timeout_s=1.5, on_event=events.append) as batch,
            batch.trajectory("k") as trajectory,
        ):
            with pytest.raises(TurnTimeout, match="longer than turn_timeout_s"):
                reply = await trajectory.client.chat.completions.create(**ASK, stream=streamed)
                if streamed:
                    async for _ in reply:
                        pass
            await trajectory.client.chat.completions.create(**ASK)
            assert trajectory.usage.timeouts == 1
            assert batch.statistics().turns_in_flight == 0

    anyio.run(main)
    assert [(turn.outcome, turn.timed_out, turn.attempts) for turn in turns(events)] == [
        ("failed", True, 2),
        ("ok", False, 1),
    ]
    assert [one.status for one in attempts(events)] == [500]


def test_a_raw_body_read_too_slowly_by_the_server_is_a_time_out() -> None:
    events: list[Event] = []

    async def main() -> None:
        async with (
            ScriptedServer(lambda received: Answer(text="a b c", stall_after=1)) as server,
            AgentBatch(cs=1, ce=1, base_url=server.url, turn_timeout_s=0.5, on_event=events.append) as batch,
            batch.trajectory("k") as trajectory,
        ):
            completions = trajectory.client.chat.completions
            with pytest.raises(TurnTimeout):
                async with completions.with_streaming_response.create(**ASK, stream=True) as response:
                    async for _ in response.iter_bytes():
                        pass
            raw = await completions.with_raw_response.create(**ASK, stream=True)
            with pytest.raises(TurnTimeout):
                async for _ in raw.parse():
                    pass

    anyio.run(main)
    assert [(turn.outcome, turn.timed_out) for turn in turns(events)] == [("failed", True)] * 2


def test_a_connections_own_time_out_is_marked_too() -> None:
    events: list[Event] = []

    async def main() -> None:
        async with (
            ScriptedServer(lambda received: Answer(delay_s=30)) as server,
            AgentBatch(cs=1, ce=1, base_url=server.url, timeout_s=0.1, retries=0, on_event=events.append) as batch,
            batch.trajectory("k") as trajectory,
        ):
            with pytest.raises(openai.APITimeoutError):
                await trajectory.client.chat.completions.create(**ASK)
            assert trajectory.usage.timeouts == 1

    anyio.run(main)
    assert [turn.timed_out for turn in turns(events)] == [True]


def test_a_refused_connection_is_no_time_out() -> None:
    """The SDK's aiohttp transport says `Request timed out` for it."""
    events: list[Event] = []

    async def main() -> None:
        async with ScriptedServer() as server:
            options: Any = {"base_url": server.url, "retries": 0, "on_event": events.append}
            async with AgentBatch(cs=1, ce=1, **options) as batch, batch.trajectory("k") as trajectory:
                await server.__aexit__(None, None, None)
                with pytest.raises(openai.APIConnectionError):
                    await trajectory.client.chat.completions.create(**ASK)
                assert trajectory.usage.timeouts == 0

    anyio.run(main)
    assert [turn.timed_out for turn in turns(events)] == [False]
    assert "[Client" in attempts(events)[0].error, "what broke is named: an aiohttp.ClientConnectionError"
    assert summarize(events).timeouts == 0
