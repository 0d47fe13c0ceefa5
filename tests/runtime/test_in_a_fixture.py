"""A batch as an async fixture: pytest-asyncio enters and leaves it in two different tasks."""

from collections.abc import AsyncIterator

import anyio.lowlevel
import pytest
import pytest_asyncio

from agentbatch import AgentBatch

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def batch() -> AsyncIterator[AgentBatch]:
    async with AgentBatch(cs=2, ce=1) as batch:
        yield batch


async def test_a_batch_may_be_entered_and_left_in_two_tasks(batch: AgentBatch) -> None:
    results = await batch.map(lambda trajectory, _: trajectory.act(anyio.lowlevel.checkpoint), range(4))
    assert all(result.ok for result in results)
    assert await batch.map(lambda trajectory, n: trajectory.act(len, "abc"), ["in a thread"])
