"""What binds, in runs whose answer is known, and what one more slot was really worth."""

from collections.abc import Mapping
from dataclasses import dataclass

import anyio
import pytest

from agentbatch import AgentBatch, Trajectory
from agentbatch.events import Event
from agentbatch.policy.bottleneck import Bottleneck
from agentbatch.testing import virtual_clock
from agentbatch.trace import summarize

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])
@dataclass(frozen=True)
class Case:
    """One kind of batch: the same tasks, again and again through turn, own code and environment jobs."""

    cs: int
    ce: Mapping[str, int]
    turn_s: float
    jobs: tuple[tuple[str, float], ...] = ()
    own_s: float = 0.0
    shared: bool = False
    """Turns share one processor: two in flight take twice as long."""
    tasks: int = 120
    rounds: int = 4
    expected: str = ""


CASES = {
    "one slot for long jobs": Case(6, {"default": 1}, 2.0, (("default", 10.0),), expected="ce:default"),
    "two resources, one tight": Case(
        12, {"files": 8, "web": 2}, 1.0, (("files", 3.0), ("web", 6.0)), expected="ce:web"
    ),
    "turns of constant length": Case(2, {"default": 4}, 10.0, (("default", 1.0),), expected="cs"),
    "a server that shares": Case(
        8, {"default": 16}, 2.0, (("default", 3.0),), own_s=0.5, shared=True, expected="inference"
    ),
    "code of its own": Case(3, {"default": 4}, 1.0, (("default", 1.0),), own_s=9.0, expected="harness"),
}


def run(case: Case, backend: str = "asyncio", more: str = "") -> tuple[float, Bottleneck, Bottleneck, list[Event]]:
    """Run a case, with one more slot of `more`; returns makespan, the verdict at half time, on the whole, the events.

    Jobs and own code differ by trajectory and round, so that no two runs fall into step.
    """
    ce = {name: slots + (more == f"ce:{name}") for name, slots in case.ce.items()}
    cs = case.cs + (more == "cs")
    events: list[Event] = []
    verdicts: list[Bottleneck] = []
    ended = 0

    async def main() -> float:
        nonlocal ended
        in_flight = 0
        async with AgentBatch(cs=cs, ce=ce, on_event=events.append, run="r") as batch:

            async def solve(trajectory: Trajectory, n: int) -> None:
                nonlocal ended, in_flight
                for k in range(case.rounds):
                    pace = 0.5 + ((7 * n + 3 * k) % 11) / 10  # 0.5 to 1.5, on average 1
                    turn = trajectory.begin_turn("/chat/completions", streamed=False)
                    in_flight += 1
                    work_s = case.turn_s
                    while work_s > 1e-9:
                        await anyio.sleep(step_s := min(0.5, work_s) if case.shared else work_s)
                        work_s -= step_s / in_flight if case.shared else work_s
                    in_flight -= 1
                    turn.finish()
                    if case.own_s:
                        await anyio.sleep(case.own_s * pace)
                    for name, seconds in case.jobs:
                        async with trajectory.environment(name):
                            await anyio.sleep(seconds * pace)
                ended += 1
                if ended == case.tasks // 2:
                    verdicts.append(batch.statistics().bottleneck)

            await batch.map(solve, range(case.tasks))
            now_s = batch.clock.now()
            verdicts.append(batch.whereabouts.bottleneck(now_s, cs, ce))
            return now_s

    makespan_s = virtual_clock.run(main, backend=backend)
    return makespan_s, verdicts[0], verdicts[1], events


@BACKENDS
@pytest.mark.parametrize("name", CASES)
def test_what_binds_is_found_now_and_on_the_whole(name: str, backend: str) -> None:
    case = CASES[name]
    makespan_s, now, whole, events = run(case, backend)
    for verdict in (now, whole):
        assert verdict.name == case.expected, verdict.sentence
        assert sum(verdict.shares.values()) == pytest.approx(1.0)
    # told from its events, the run gives the same account
    summary = summarize(events)
    assert summary.makespan_s == pytest.approx(makespan_s)
    assert summary.bottleneck == case.expected
    assert summary.time_shares == pytest.approx(whole.shares)
    assert summary.slot_gain == pytest.approx(whole.gain, abs=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_one_more_slot_is_worth_no_more_than_promised(name: str) -> None:
    case = CASES[name]
    before_s, _, verdict, _ = run(case)
    real = {}
    for limit in verdict.gain:
        after_s, *_ = run(case, more=limit)
        real[limit] = before_s / after_s - 1
    for limit, promised in verdict.gain.items():
        assert real[limit] <= promised + 0.02, (limit, real)
    if verdict.name in verdict.gain:
        assert max(real, key=lambda limit: real[limit]) == verdict.name


def test_the_last_trajectory_alone_is_short_of_no_limit() -> None:
    verdicts: list[Bottleneck] = []

    async def main() -> None:
        async with AgentBatch(cs=4, ce=2) as batch:

            async def solve(trajectory: Trajectory, n: int) -> None:
                for _ in range(60 if n == 7 else 2):
                    turn = trajectory.begin_turn("/chat/completions", streamed=False)
                    await anyio.sleep(3.0)
                    turn.finish()
                    async with trajectory.environment():
                        await anyio.sleep(1.0)
                verdicts.append(batch.statistics().bottleneck)

            await batch.map(solve, range(8))
            verdicts.append(batch.statistics().bottleneck)

    virtual_clock.run(main)
    *_, alone, after = verdicts
    assert (alone.kind, dict(alone.gain)) == ("trajectories", {"cs": 0.0, "ce:default": 0.0})
    assert alone.shares == pytest.approx(
        {"inference": 0.75, "environment": 0.25, "harness": 0.0, "waiting:default": 0.0}
    )
    assert after.kind == "trajectories", "the last minute, now that nothing runs"


@BACKENDS
def test_blocks_that_share_a_slot_count_once_and_turns_within_them_are_inference(backend: str) -> None:
    async def main() -> Bottleneck:
        async with AgentBatch(cs=2, ce=1) as batch:

            async def solve(trajectory: Trajectory, _: int) -> None:
                async with trajectory.environment(), anyio.create_task_group() as group:

                    async def operation() -> None:
                        async with trajectory.environment():
                            await anyio.sleep(6.0)

                    group.start_soon(operation)
                    group.start_soon(operation)
                    turn = trajectory.begin_turn("/chat/completions", streamed=False)
                    await anyio.sleep(2.0)
                    turn.finish()

            await batch.map(solve, range(1))
            spent = batch.whereabouts.spent(batch.clock.now(), 2, {"default": 1})
            assert (spent.inference_s, spent.environment_s) == pytest.approx((2.0, 4.0))
            assert spent.held_s["default"] == pytest.approx(6.0)
            return batch.statistics().bottleneck

    assert virtual_clock.run(main, backend=backend).kind == "unknown", "six seconds, two completions"


@BACKENDS
def test_nobody_is_anywhere_after_cancelling_at_any_moment(backend: str) -> None:
    async def main(after_s: float) -> None:
        async with AgentBatch(cs=3, ce=1) as batch:

            async def solve(trajectory: Trajectory, _: int) -> None:
                for _ in range(2):
                    turn = trajectory.begin_turn("/chat/completions", streamed=False)
                    try:
                        await anyio.sleep(1.0)
                    finally:
                        turn.finish()
                    async with trajectory.environment():
                        await anyio.sleep(1.0)

            with anyio.move_on_after(after_s):
                await batch.map(solve, range(5))
            now_s, whereabouts = batch.clock.now(), batch.whereabouts
            assert repr(whereabouts) == "<Whereabouts inference=0 environment=0 waiting=0 harness=0>"
            levels = (whereabouts.active, whereabouts.in_flight, whereabouts._busy, whereabouts._queued)
            assert [level.count for level in (*levels, *whereabouts.held.values())] == [0] * 5
            assert whereabouts.spent(now_s, 3, {"default": 1}).active_s > 0

    for ticks in range(1, 24):
        virtual_clock.run(main, ticks / 2, backend=backend)
