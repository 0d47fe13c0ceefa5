"""Hundreds and thousands at once: nothing caps but CS, and nothing is left open."""

from typing import Any

import anyio
import pytest
from runtime_helpers import ASK, assert_nothing_held, turns, until

from agentbatch import AgentBatch
from agentbatch.events import Event
from agentbatch.testing import Answer, Received, ScriptedServer

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("cs", [300, 1000])
async def test_the_servers_peak_is_cs_and_no_pool_times_out(cs: int) -> None:
    """openai-python#2539 and #821: PoolTimeout above 100 to 1,000; inspect_ai#847, NeMo-RL#3590: hidden caps."""
    together = anyio.Event()

    def script(received: Received) -> Answer:
        if server.in_flight >= cs:
            together.set()
        return Answer(delay_s=0.3)

    async with (
        ScriptedServer(script) as server,
        AgentBatch(cs=cs, ce=1, base_url=server.url, timeout_s=30, retries=0) as batch,
    ):

        async def solve(trajectory: Any, n: int) -> None:
            await trajectory.client.chat.completions.create(**ASK)

        results = await batch.map(solve, range(cs + cs // 2))
        assert [result.error for result in results if not result.ok] == []
        assert server.peak == cs
        assert together.is_set()
        assert_nothing_held(batch)


@pytest.mark.parametrize("how", ["break and close", "break", "trajectory ends"])
async def test_breaking_out_of_500_streams_leaves_no_connection(how: str) -> None:
    events: list[Event] = []
    async with (
        ScriptedServer(lambda received: Answer(text="a b c d e f", stall_after=2)) as server,
        AgentBatch(cs=500, ce=1, base_url=server.url, on_event=events.append) as batch,
    ):

        async def solve(trajectory: Any, n: int) -> None:
            stream = await trajectory.client.chat.completions.create(**ASK, stream=True)
            async for _ in stream:
                break
            if how == "break and close":
                await stream.close()
            elif how == "break":
                await trajectory.act(anyio.sleep, 0)

        results = await batch.map(solve, range(500))
        assert all(result.ok for result in results)
        assert_nothing_held(batch)
        await until(lambda: server.connections == 0)
    assert len(turns(events)) == 500


async def test_every_path_of_a_fan_out_is_limited() -> None:
    """prime-rl#1705, verifiers#1939, tau2#457: one path or fan-out went past the limit. Peaks on every path here."""
    inside: dict[str, int] = {}
    peaks: dict[str, int] = {}

    async def tool(path: str) -> None:
        inside["all"] = inside.get("all", 0) + 1
        peaks["all"] = max(peaks.get("all", 0), inside["all"])
        peaks[path] = peaks.get(path, 0) + 1
        await anyio.sleep(0.001)
        inside["all"] -= 1

    async with AgentBatch(cs=20, ce=4) as batch:

        async def fan_out(trajectory: Any, n: int) -> None:
            child = trajectory.child("sub")
            async with anyio.create_task_group() as group:
                group.start_soon(trajectory.act, tool, "act")
                group.start_soon(child.act, tool, "child")
                group.start_soon(_by_module, "module")
                group.start_soon(_in_block, trajectory, "block")

        async def _in_block(trajectory: Any, path: str) -> None:
            async with trajectory.environment():
                await tool(path)

        async def _by_module(path: str) -> None:
            import agentbatch

            await agentbatch.act(tool, path)

        async def own(n: int) -> None:
            async with batch.trajectory(f"own {n}") as trajectory:
                await fan_out(trajectory, n)

        async with anyio.create_task_group() as group:
            group.start_soon(batch.map, fan_out, range(30))
            for n in range(30):
                group.start_soon(own, n)
        async with batch.as_completed(fan_out, range(100, 130)) as results:
            assert [result.ok async for result in results] == [True] * 30
        assert_nothing_held(batch)
    assert peaks.pop("all") == 4
    assert peaks == dict.fromkeys(("act", "child", "module", "block"), 90)
