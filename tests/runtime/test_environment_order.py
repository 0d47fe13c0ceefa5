"""The order in which environment jobs run, end to end, against a reference that shares no code with the package."""

import math
import random
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any

import anyio
import pytest
from runtime_helpers import assert_nothing_held, jobs

from agentbatch import AgentBatch
from agentbatch.events import Event, RunStarted
from agentbatch.testing import virtual_clock

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])
Stage = tuple[float, str, float]
"""Seconds of the turn, resource, seconds of the job that follows it."""


def workload(seed: int, trajectories: int, longer: float = 1.0) -> list[list[Stage]]:
    source = random.Random(seed)

    def stage() -> Stage:
        return source.uniform(0.2, 6.0), source.choice(["files", "web"]), source.uniform(0.5, 9.0) * longer

    return [[stage() for _ in range(source.randint(1, 6))] for _ in range(trajectories)]


@dataclass
class Reference:
    """Spec §2 in fifty lines, and what goes beyond it: when each job of a workload is granted."""

    stages: list[list[Stage]]
    cs: int
    ce: dict[str, int]
    policy: str
    band_s: Any
    bucket_s: float
    admission: list[int] | None = None  # who is admitted after whom
    granted: list[tuple[str, int, int]] = field(default_factory=list)

    def run(self) -> "Reference":
        admitted = min(self.cs, len(self.stages))
        # (time, tie, what happens, trajectory, stage)
        line = self.admission or list(range(len(self.stages)))
        clock: list[Any] = [(self.stages[n][0][0], tie, "turn ends", n, 0) for tie, n in enumerate(line[:admitted])]
        heapify(clock)
        queues: dict[str, list[Any]] = {name: [] for name in self.ce}
        free = dict(self.ce)
        entry = tie = 0
        spent, held = [0.0] * len(self.stages), [0.0] * len(self.stages)
        asked: dict[tuple[int, int], float] = {}
        waits: dict[str, list[float]] = {name: [] for name in self.ce}
        bands = dict.fromkeys(self.ce, (-1, 0.0))  # number and end of the one now open
        while clock:
            now, _, what, n, k = heappop(clock)
            tie += 1
            seconds, name, job_s = self.stages[n][k]
            if what == "turn ends":
                spent[n] += seconds
                entry += 1
                key: tuple[int, ...] = (entry,)
                if self.policy in ("caas", "depth"):
                    mean = spent[n] / (k + 1)
                    if self.band_s == "auto":
                        number, end = bands[name]
                        late, least = waits[name][-64:], 30.0 if self.policy == "caas" else 300.0
                        width = max(least, sum(late) / len(late)) if late else least
                        while end <= now:
                            number, end = number + 1, end + width
                        bands[name] = number, end
                    else:
                        number = math.floor(now / self.band_s)
                    key = (number, -(k + 1), math.floor(mean / self.bucket_s), entry)
                    if self.policy == "depth":
                        key = (number, -(k + 1), entry)
                elif self.policy == "slow-step":
                    key = (-(30.0 + spent[n] + held[n]) / (2 + k + 1), entry)
                asked[n, k] = now
                heappush(queues[name], (key, n, k))
            else:
                free[name] += 1
                held[n] += job_s
                if k + 1 < len(self.stages[n]):
                    heappush(clock, (now + self.stages[n][k + 1][0], 1000 + tie, "turn ends", n, k + 1))
                elif admitted < len(self.stages):
                    m = line[admitted]
                    heappush(clock, (now + self.stages[m][0][0], 1000 + tie, "turn ends", m, 0))
                    admitted += 1
            while queues[name] and free[name]:
                _, m, j = heappop(queues[name])
                free[name] -= 1
                waits[name].append(now - asked[m, j])
                self.granted.append((name, m, j))
                heappush(clock, (now + self.stages[m][j][2], 1000 + tie, "job ends", m, j))
        return self


def grant_order(backend: str, stages: list[list[Stage]], **options: Any) -> list[tuple[str, int, int]]:
    """Run a workload through AgentBatch on a virtual clock."""
    granted: list[tuple[str, int, int]] = []

    async def main() -> None:
        async with AgentBatch(**options) as batch:

            async def solve(trajectory: Any, n: int) -> None:
                for k, (seconds, name, job_s) in enumerate(stages[n]):
                    turn = trajectory.begin_turn("/chat/completions", streamed=False)
                    await anyio.sleep(seconds)
                    turn.finish()
                    async with trajectory.environment(name):
                        granted.append((name, n, k))
                        await anyio.sleep(job_s)

            results = await batch.map(solve, range(len(stages)))
            assert all(result.ok for result in results)
            assert_nothing_held(batch)

    virtual_clock.run(main, backend=backend)
    return granted


@BACKENDS
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("policy", "band_s", "bucket_s"),
    [
        ("caas", 30.0, 1.0), ("caas", 5.0, 0.5), ("caas", 1e6, 2.0), ("fcfs", 30.0, 1.0),
        ("caas", "auto", 1.0), ("depth", 30.0, 1.0), ("depth", "auto", 1.0), ("depth", 1e9, 1.0),
        ("slow-step", 30.0, 1.0),
    ],
)  # fmt: skip
def test_every_grant_of_a_whole_run_is_the_references(
    backend: str, seed: int, policy: str, band_s: Any, bucket_s: float
) -> None:
    stages = workload(seed, 24, 10.0 if band_s == "auto" else 1.0)  # waits of minutes, which bands then follow
    options: dict[str, Any] = {"cs": 14, "ce": {"files": 2, "web": 1}, "band_s": band_s, "bucket_s": bucket_s}
    expected = Reference(stages, policy=policy, **options).run().granted
    assert len(expected) == sum(map(len, stages))
    assert grant_order(backend, stages, env_policy=policy, **options) == expected


@BACKENDS
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("policy", ["caas", "depth"])
def test_every_grant_is_the_references_where_the_longest_are_admitted_first(
    backend: str, seed: int, policy: str
) -> None:
    """With a profile that knows two tasks of three; the others count as its median."""
    stages = workload(seed, 24)
    options: dict[str, Any] = {"cs": 9, "ce": {"files": 2, "web": 1}, "band_s": 30.0, "bucket_s": 1.0}
    profile = {str(n): sum(a + b for a, _, b in stages[n]) for n in range(24) if n % 3}
    middle = sorted(profile.values())[7] / 2 + sorted(profile.values())[8] / 2
    line = sorted(range(24), key=lambda n: (-profile.get(str(n), middle), n))
    expected = Reference(stages, policy=policy, admission=line, **options).run().granted
    longest: dict[str, Any] = {"admission": "longest-first", "profile": profile, "env_policy": policy}
    assert grant_order(backend, stages, **longest, **options) == expected


def test_the_policies_really_differ_on_these_workloads() -> None:
    stages = workload(0, 24, 10.0)
    options: dict[str, Any] = {"cs": 14, "ce": {"files": 2, "web": 1}}
    ways: list[dict[str, Any]] = [{}, {"band_s": "auto"}, *({"env_policy": p} for p in ("fcfs", "depth", "slow-step"))]
    ways.append({"env_policy": "depth", "band_s": 1e9})
    assert len({tuple(grant_order("asyncio", stages, **way, **options)) for way in ways}) == len(ways)


@BACKENDS
@pytest.mark.parametrize(("options", "band_s"), [
    ({}, 30.0), ({"env_policy": "depth"}, "auto"), ({"env_policy": "depth", "band_s": 9}, 9),
    ({"env_policy": "slow-step"}, None), ({"env_policy": "fcfs", "band_s": 9}, None),
])  # fmt: skip
def test_a_record_tells_the_band_in_force(backend: str, options: dict[str, Any], band_s: Any) -> None:
    events: list[Event] = []

    async def main() -> None:
        async with AgentBatch(cs=1, ce=1, on_event=events.append, **options):
            pass

    virtual_clock.run(main, backend=backend)
    assert [event.band_s for event in events if isinstance(event, RunStarted)] == [band_s]


@BACKENDS
def test_a_key_stays_as_it_was_when_the_job_asked(backend: str) -> None:
    """Eq. 16: turns that end while a job waits do not move it."""
    order: list[str] = []

    async def main() -> None:
        async with AgentBatch(cs=3, ce=1) as batch:

            async def job(trajectory: Any, name: str, seconds: float) -> None:
                async with trajectory.environment():
                    order.append(name)
                    await anyio.sleep(seconds)

            async def solve(trajectory: Any, name: str) -> None:
                if name == "holder":
                    await job(trajectory, name, 20)
                elif name == "grows":  # asks with no turn behind it, and has five while it waits
                    async with anyio.create_task_group() as group:
                        await anyio.sleep(1)
                        group.start_soon(job, trajectory, name, 1)
                        for _ in range(5):
                            turn = trajectory.begin_turn("/chat/completions", streamed=False)
                            await anyio.sleep(1)
                            turn.finish()
                else:
                    turn = trajectory.begin_turn("/chat/completions", streamed=False)
                    await anyio.sleep(2)
                    turn.finish()
                    await job(trajectory, name, 1)

            await batch.map(solve, ["holder", "grows", "steady"], key=str)

    virtual_clock.run(main, backend=backend)
    assert order == ["holder", "steady", "grows"]


@BACKENDS
def test_a_failed_turn_counts_neither_as_a_turn_nor_in_the_mean(backend: str) -> None:
    events: list[Event] = []

    async def main() -> None:
        async with AgentBatch(cs=1, ce=1, on_event=events.append) as batch, batch.trajectory("t") as trajectory:
            for seconds, error in ((2.0, None), (50.0, RuntimeError("no")), (4.0, None)):
                turn = trajectory.begin_turn("/chat/completions", streamed=False)
                await anyio.sleep(seconds)
                turn.finish(error)
            assert (trajectory.progress.turns, trajectory.progress.mean) == (2, pytest.approx(3.0))
            await trajectory.act(anyio.sleep, 0)

    virtual_clock.run(main, backend=backend)
    assert [job.turns for job in jobs(events)] == [2]


@BACKENDS
def test_the_unified_gate_admits_no_more_than_the_environment_takes(backend: str) -> None:
    """Eq. 11: CS = CE = min(CS, CE), so nothing ever waits for the environment."""

    async def main() -> float:
        async with AgentBatch(cs=50, ce={"default": 3, "web": 8}, unified=True) as batch:
            assert batch.statistics().admission.capacity == 3
            peak = 0

            async def solve(trajectory: Any, n: int) -> None:
                nonlocal peak
                await anyio.sleep(4)
                async with trajectory.environment():
                    peak = max(peak, batch.statistics().admission.held)
                    await anyio.sleep(1)

            results = await batch.map(solve, range(9))
            assert peak == 3
            assert [result.timing.environment_wait_s for result in results] == [0.0] * 9
            return batch.clock.now()

    assert virtual_clock.run(main, backend=backend) == pytest.approx(15.0)  # decoupled: 4 + 9 / 3 = 7


@BACKENDS
def test_seconds_in_the_account_add_up(backend: str) -> None:
    async def main() -> None:
        async with AgentBatch(cs=1, ce=1) as batch:

            async def solve(trajectory: Any, n: int) -> None:
                turn = trajectory.begin_turn("/chat/completions", streamed=False)
                await anyio.sleep(3)
                turn.finish()
                async with trajectory.environment():
                    await anyio.sleep(5)

            first, second = (result.timing for result in await batch.map(solve, range(2)))
            for timing, waited in ((first, 0.0), (second, 8.0)):
                assert timing.admission_wait_s == pytest.approx(waited)
                assert timing.inference_s == pytest.approx(3.0)
                assert timing.environment_s == pytest.approx(5.0)
                assert timing.environment_wait_s == pytest.approx(0.0)
                assert timing.active_s == pytest.approx(8.0)

    virtual_clock.run(main, backend=backend)
