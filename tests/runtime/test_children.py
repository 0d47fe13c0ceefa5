"""Children: their own label and chain, their parent's slot and account."""

from typing import Any

import anyio
import pytest
from runtime_helpers import ASK, assert_nothing_held, jobs, turns

from agentbatch import AgentBatch, ChildTrajectory, SlotConflict, TrajectoryClosed, UsageError
from agentbatch.events import ChildStarted, Event, TrajectoryEnded
from agentbatch.testing import ScriptedServer, virtual_clock
from agentbatch.trace import summarize

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


def test_a_judge_and_a_sub_agent_have_labels_of_their_own() -> None:
    """mecatl#543: judges and sub-agents went unkeyed, and with them their cache."""
    events: list[Event] = []

    async def main() -> None:
        async with ScriptedServer() as server, AgentBatch(
            cs=2, ce=1, base_url=server.url, run="r", on_event=events.append
        ) as batch:

            async def solve(trajectory: Any, _: int) -> None:
                await trajectory.client.chat.completions.create(**ASK)
                judge = trajectory.child("judge")
                assert isinstance(judge, ChildTrajectory)
                assert judge is trajectory.child("judge")
                await judge.client.chat.completions.create(**ASK)
                await judge.child("second opinion").client.chat.completions.create(**ASK)
                await trajectory.child("user").client.chat.completions.create(**ASK)
                assert (judge.usage.turns, trajectory.usage.turns) == (2, 4)
                assert (judge.progress.turns, trajectory.progress.turns) == (2, 1)

            results = await batch.map(solve, range(2))
            assert all(result.ok and result.usage.turns == 4 for result in results)
            assert_nothing_held(batch)
            seen = sorted(received.headers["x-smg-routing-key"] for received in server.received)
            one = ["r-{}", "r-{}/judge", "r-{}/judge/second opinion", "r-{}/user"]
            assert seen == sorted(name.format(n) for n in range(2) for name in one)

    anyio.run(main)
    assert {turn.label for turn in turns(events)} >= {"r-0/judge", "r-1/user"}
    assert {(event.label, event.parent) for event in events if isinstance(event, ChildStarted)} >= {
        ("r-0/judge", "r-0"), ("r-0/judge/second opinion", "r-0/judge")
    }  # fmt: skip
    assert len([event for event in events if isinstance(event, TrajectoryEnded)]) == 2
    assert summarize(events).completed == 2


@BACKENDS
def test_a_childs_chain_starts_from_its_parents_and_does_not_change_it(backend: str) -> None:
    events: list[Event] = []

    async def main() -> None:
        async with AgentBatch(cs=1, ce=1, on_event=events.append) as batch, batch.trajectory("t") as trajectory:
            trajectory.progress = trajectory.progress.completed(2.0).completed(4.0)
            child = trajectory.child("sub")
            child.progress = child.progress.completed(9.0)
            assert (child.progress.turns, child.progress.mean) == (3, 5.0)
            assert (trajectory.progress.turns, trajectory.progress.mean) == (2, 3.0)
            async with child.environment():
                await anyio.sleep(3)
                async with trajectory.environment():  # one lineage, one slot
                    await anyio.sleep(1)
            assert batch.statistics().environment["default"].held == 0
            assert (child.usage.environment_jobs, trajectory.usage.environment_jobs) == (1, 1)
            assert trajectory.timing().environment_s == pytest.approx(4)

    virtual_clock.run(main, backend=backend)
    [job] = jobs(events)
    assert (job.label.endswith("-t/sub"), job.turns, job.operations) == (True, 3, 2)


@BACKENDS
def test_no_child_shares_a_label_with_anybody(backend: str) -> None:
    async def main() -> None:
        async with AgentBatch(cs=9, ce=1, run="r") as batch, batch.trajectory("a/b") as namesake:
            assert namesake.label == "r-a/b"
            async with batch.trajectory("a") as trajectory:
                assert trajectory.child("b").label == "r-a/b~2"
                assert trajectory.child("b~2").label == "r-a/b~2~2"
                long = trajectory.child("x" * 200).label
                assert long.startswith("sha256-")
                assert trajectory.child("x" * 201).label != long

    virtual_clock.run(lambda: _outside(main), backend=backend)


async def _outside(main: Any) -> None:
    try:
        await main()
    except SlotConflict:  # two trajectories of one batch in one task: done apart below
        async with AgentBatch(cs=9, ce=1, run="r") as batch:
            labels: dict[str, list[str]] = {}

            async def solve(trajectory: Any, key: str) -> None:
                labels[key] = [trajectory.label]
                if key == "a":
                    labels[key] += [trajectory.child(name).label for name in ("b", "b~2", "x" * 200, "x" * 201)]

            await batch.map(solve, ["a/b", "a"], key=str)
            every = [label for some in labels.values() for label in some]
            assert len(set(every)) == len(every) == 6
            assert labels["a/b"] == ["r-a/b"]
            assert labels["a"][1:3] == ["r-a/b~2", "r-a/b~2~2"]
            assert all(label.startswith("sha256-") for label in labels["a"][3:])


@BACKENDS
def test_a_child_lives_and_ends_with_its_parent(backend: str) -> None:
    async def main() -> None:
        async with AgentBatch(cs=1, ce=1) as batch:
            async with batch.trajectory("t") as trajectory:
                child = trajectory.child("sub")
                assert child.is_open
                with pytest.raises(UsageError, match="cancel its parent"):
                    child.cancel()
                with pytest.raises(UsageError, match="needs a name"):
                    trajectory.child("")
            assert not child.is_open
            for use in (child.check_open, lambda: child.child("deeper"), lambda: trajectory.child("late")):
                with pytest.raises(TrajectoryClosed):
                    use()
            with pytest.raises(TrajectoryClosed):
                async with child.environment():
                    pass

    virtual_clock.run(main, backend=backend)
