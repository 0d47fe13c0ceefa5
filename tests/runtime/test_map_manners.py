"""What a batch says of itself, and what `map` makes of odd functions, keys and hooks."""

import os
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from runtime_helpers import assert_nothing_held

from agentbatch import (
    AgentBatch,
)
from agentbatch.events import Event
from agentbatch.testing import virtual_clock

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


def test_a_hook_that_raises_is_reported_once_and_dropped() -> None:
    calls = 0

    def hook(event: Event) -> None:
        nonlocal calls
        calls += 1
        raise RuntimeError("mine")

    async def main() -> None:
        async with AgentBatch(cs=2, ce=1, on_event=hook) as batch:
            results = await batch.map(lambda trajectory, _: anyio.lowlevel.checkpoint(), range(3))
            assert all(result.ok for result in results)
            assert [notice.kind for notice in batch.hub.notices] == ["hook-failed"]

    anyio.run(main)
    assert calls == 1


def test_statistics_and_reprs_tell_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)

    async def main() -> None:
        batch = AgentBatch(cs=2, ce={"default": 3}, run="r", api_key="sk-secret", unified=True)
        assert repr(batch) == "<AgentBatch 'r' new cs=2 ce={'default': 3}>"
        assert "sk-secret" not in repr(batch.options)
        async with batch, batch.trajectory("k") as trajectory:
            assert repr(trajectory) == "<Trajectory 'k' open turns=0>"
            assert batch.statistics().admission.held == 1

    anyio.run(main)
    assert "OPENAI_BASE_URL" not in os.environ


def test_a_plain_function_given_to_map_is_told_where_to_go() -> None:
    async def main() -> None:
        async with AgentBatch(cs=1, ce=1) as batch:
            plain: Any = lambda trajectory, n: n  # noqa: E731
            [result] = await batch.map(plain, [1])
            assert "give it to map_sync" in str(result.error)

    virtual_clock.run(main)


def test_the_repr_follows_the_batch() -> None:
    async def main() -> None:
        async with AgentBatch(cs=6, ce={"default": 3, "gpu": 1}, run="r") as batch:
            batch.resize(cs=12, ce={"gpu": 2})
            assert repr(batch) == "<AgentBatch 'r' open cs=12 ce={'default': 3, 'gpu': 2}>"
            batch.drain()
            assert "draining" in repr(batch)
        assert "closed" in repr(batch)

    virtual_clock.run(main)


def test_a_hook_may_listen_for_a_while() -> None:
    async def main() -> None:
        async with AgentBatch(cs=1, ce=1) as batch:
            heard: list[str] = []
            with batch.listen(lambda event: heard.append(event.event)):
                await batch.map(solve_nothing, [1])
            await batch.map(solve_nothing, [2])
            assert heard == ["admitted", "ended"]

    virtual_clock.run(main)


async def solve_nothing(trajectory: Any, _: int) -> None:
    pass


def test_two_maps_at_once_need_no_keys() -> None:
    async def main() -> None:
        async with AgentBatch(cs=3, ce=3, run="r") as batch:
            labels: list[str] = []

            async def solve(trajectory: Any, n: int) -> int:
                labels.append(trajectory.label)
                await anyio.sleep(1)
                return n

            async with anyio.create_task_group() as group:
                for _ in range(2):
                    group.start_soon(batch.map, solve, range(4))
            assert sorted(labels) == sorted(f"r-{n}{again}" for n in range(4) for again in ("", "~2"))
            assert_nothing_held(batch)

    virtual_clock.run(main)
