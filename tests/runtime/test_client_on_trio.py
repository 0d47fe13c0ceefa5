"""The same client under trio, where aiohttp does not run: emulated workers in a process of their own."""

import gc
from typing import Any

import anyio
import pytest

from agentbatch import AgentBatch
from agentbatch.emulator import spawn

ASK: Any = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}


# The SDK leaves its event generator to the garbage collector after [DONE], which trio warns of; nothing of ours.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_turns_and_streams_on_trio() -> None:
    async def solve(trajectory: Any, n: int) -> int:
        await trajectory.client.chat.completions.create(**ASK)
        async with await trajectory.client.chat.completions.create(**ASK, stream=True) as stream:
            chunks = [chunk async for chunk in stream]
        async with trajectory.environment():
            await anyio.sleep(0.01)
        return len(chunks)

    async def main() -> None:
        async with (
            spawn(workers=2, speedup=200) as emulated,
            AgentBatch(cs=4, ce=2, base_url=emulated.urls) as batch,
        ):
            results = await batch.map(solve, range(8))
            assert all(result.ok and result.value >= 2 for result in results), results
            assert [result.usage.turns for result in results] == [2] * 8
            assert [notice.kind for notice in batch.hub.notices] == ["transport"]
            assert batch.statistics().turns_in_flight == 0

    anyio.run(main, backend="trio")
    gc.collect()  # here, and not in some later test
