"""`as_completed`: each result as it ends, and nothing left when its reader leaves."""

from typing import Any

import anyio
import pytest
from runtime_helpers import assert_nothing_held

from agentbatch import AgentBatch, UsageError
from agentbatch.events import Event, TrajectoryEnded
from agentbatch.testing import virtual_clock

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


async def solve(trajectory: Any, seconds: float) -> float:
    async with trajectory.environment():
        await anyio.sleep(seconds)
    if seconds == 3:
        raise ValueError("three")
    return seconds


@BACKENDS
def test_results_come_in_the_order_of_their_ends(backend: str) -> None:
    async def main() -> None:
        async with AgentBatch(cs=5, ce=5) as batch:
            async with batch.as_completed(solve, [5, 1, 4, 3, 2], key=str) as results:
                seen = [(result.key, result.ok, batch.clock.now()) async for result in results]
            assert [(key, ok) for key, ok, _ in seen] == [
                ("1", True), ("2", True), ("3", False), ("4", True), ("5", True)
            ]  # fmt: skip
            assert [at for _, _, at in seen] == pytest.approx([1, 2, 3, 4, 5])
            assert_nothing_held(batch)

    virtual_clock.run(main, backend=backend)


@BACKENDS
def test_a_slow_reader_holds_nothing_up(backend: str) -> None:
    async def main() -> None:
        async with AgentBatch(cs=2, ce=2) as batch, batch.as_completed(solve, [1.0] * 20) as results:
            await anyio.sleep(1000)
            assert batch.statistics().trajectories_completed == 20
            assert len([result async for result in results]) == 20

    virtual_clock.run(main, backend=backend)


@BACKENDS
def test_a_reader_that_closes_its_results_ends_nothing_else(backend: str) -> None:
    async def main() -> None:
        async with AgentBatch(cs=2, ce=2) as batch:
            async with batch.as_completed(solve, [1.0] * 6) as results:
                async with results:  # type: ignore[attr-defined]  # a stream of anyio, as many will find
                    assert (await anext(results)).ok
                await anyio.sleep(10)
            assert batch.statistics().trajectories_completed == 6
            assert_nothing_held(batch)

    virtual_clock.run(main, backend=backend)


@BACKENDS
@pytest.mark.parametrize("how", ["break", "raise", "cancel"])
def test_leaving_early_cancels_the_rest_and_says_so(backend: str, how: str) -> None:
    events: list[Event] = []

    async def main() -> None:
        async with AgentBatch(cs=3, ce=3, on_event=events.append) as batch:
            try:
                with anyio.CancelScope() as scope:
                    async with batch.as_completed(solve, [1, 20, 30, 40, 50]) as results:
                        async for result in results:
                            assert result.value == 1
                            if how == "raise":
                                raise KeyError("mine")
                            if how == "cancel":
                                scope.cancel()
                                await anyio.sleep(1)
                            break
            except KeyError:  # as it was raised, in no group
                left = "raise"
            else:
                left = "otherwise"
            assert (left == "raise") == (how == "raise")
            assert_nothing_held(batch)
            assert batch.clock.now() == pytest.approx(1)
            assert (await batch.map(solve, [1]))[0].ok

    virtual_clock.run(main, backend=backend)
    ended = sorted(event.outcome for event in events if isinstance(event, TrajectoryEnded))
    assert ended == ["cancelled"] * 4 + ["ok"] * 2


@BACKENDS
def test_bad_tasks_are_refused_before_anything_runs_and_none_are_fine(backend: str) -> None:
    async def main() -> None:
        async with AgentBatch(cs=3, ce=3) as batch:
            with pytest.raises(UsageError, match="stands twice"):
                async with batch.as_completed(solve, [1, 1], key=str):
                    raise AssertionError("ran")
            async with batch.as_completed(solve, []) as results:
                assert [result async for result in results] == []

    virtual_clock.run(main, backend=backend)
