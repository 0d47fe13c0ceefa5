"""Long runs: 1,000,000 turns on the virtual clock, an hour's worth; and real HTTP for ten minutes. Flat, without drift.

Both mix everything that takes and gives back: streams left half-way, retries, time-outs, cancellations, children,
resources, resizing. Memory is compared between the second and the last quarter; every counter with what was done. What
a batch keeps of each trajectory and child that has ended is a hash of its label, about 85 bytes: no label comes twice.
"""

import gc
import random
import time

import anyio
import psutil

from agentbatch import AgentBatch, EnvironmentTimeout, RetryPolicy
from agentbatch.testing import Answer, ScriptedServer, virtual_clock

VIRTUAL_TURNS = 1_000_000
REAL_S = 600.0
MOST_GROWTH_MB = 16.0
"""Of resident memory, between the second and the last quarter, each time after a collection: 2 were measured on the
virtual clock, for the hashes of labels."""


def _megabytes() -> float:
    gc.collect()  # what leaks, not what the collector has yet to find: a trajectory and its clients refer to each other
    return psutil.Process().memory_info().rss / 1e6


class Done:
    """What the tasks really did, to compare the batch's counters with."""

    def __init__(self) -> None:
        self.turns = self.jobs = self.trajectories = self.timeouts = self.failed = 0
        self.memory: list[float] = []


def _drift(batch: AgentBatch, done: Done) -> dict:
    """Return by how much each counter is off, and what is still held; all 0 where all is well."""
    now = batch.statistics()
    slots = [now.admission, *now.environment.values()]
    return {
        "held": sum(one.held for one in slots),
        "waiting": sum(one.waiting for one in slots),
        "in_flight": now.turns_in_flight,
        "turns": now.turns_completed - done.turns,
        "jobs": now.jobs_completed - done.jobs,
        "trajectories": now.trajectories_completed + now.trajectories_failed - done.trajectories,
        "lingering": batch.background.lingering,
        "live_keys": len(batch._admission._live),
    }


def _growth(memory: list[float]) -> float:
    """Return MB by which the last quarter's mean is above the second's, the start-up left out."""
    quarter = len(memory) // 4
    first, last = memory[quarter : 2 * quarter], memory[-quarter:]
    return sum(last) / len(last) - sum(first) / len(first)


# -- the virtual clock: no HTTP, all of the policies and counters --------------------------------------------------


async def _virtual(turns: int, done: Done) -> dict:
    source = random.Random(1)
    began = time.monotonic()
    limits = {"default": 8, "web": 2}
    async with AgentBatch(cs=50, ce=limits, environment_timeout_s=20.0, trajectory_timeout_s=3600.0) as batch:

        async def solve(trajectory, n: int) -> None:
            done.trajectories += 1
            child = trajectory.child("judge")
            for step in range(25):
                doer = child if step % 9 == 8 else trajectory
                turn = doer.begin_turn("/chat/completions", False)
                await anyio.sleep(source.uniform(0.01, 0.3))
                if source.random() < 0.01:
                    turn.finish(ValueError("failed, as scripted"))
                else:
                    turn.finish()
                    done.turns += 1
                resource = "web" if source.random() < 0.2 else "default"
                seconds = 60.0 if source.random() < 0.0005 else source.uniform(0.0, 0.02)
                if source.random() < 0.002:
                    trajectory.cancel()  # met at the next wait
                try:
                    async with doer.environment(resource):
                        done.jobs += 1
                        await anyio.sleep(seconds)
                except EnvironmentTimeout:
                    done.timeouts += 1

        rounds = max(1, turns // 25_000)
        for number in range(rounds):
            tasks = range(1000 * number, 1000 * (number + 1))
            await batch.map(solve, tasks, key=str)
            done.memory.append(_megabytes())
            batch.resize(cs=source.randint(40, 60), ce={"default": source.randint(6, 10)})
        return {
            "turns": done.turns,
            "trajectories": done.trajectories,
            "virtual_s": round(batch.clock.now()),
            "wall_s": round(time.monotonic() - began, 1),
            "environment_timeouts": done.timeouts,
            "drift": _drift(batch, done),
            "memory_mb": round(done.memory[-1], 1),
            "memory_growth_mb": round(_growth(done.memory), 2) if len(done.memory) >= 8 else None,
        }


# -- real HTTP ------------------------------------------------------------------------------------------------------


def _script(received) -> Answer:
    number = hash((received.headers["x-smg-routing-key"], received.body.get("user"))) % 100
    if number < 3:
        return Answer(status=503, headers={"retry-after-ms": "5"})
    return Answer(text="a b c d e f g h", delay_s=0.01)


async def _real(seconds: float, done: Done) -> dict:
    source = random.Random(2)
    policy = RetryPolicy(attempts=3, first_wait_s=0.01, most_wait_s=0.05)
    ask = {"model": "m", "messages": [{"role": "user", "content": "a question " * 50}]}
    process = psutil.Process()
    descriptors: list[int] = []
    async with (
        ScriptedServer(_script) as server,
        AgentBatch(cs=64, ce=4, base_url=server.url, retries=policy, environment_timeout_s=0.5) as batch,
    ):
        ends_s = time.monotonic() + seconds

        async def solve(trajectory, n: int) -> None:
            done.trajectories += 1
            for step in range(5):
                try:
                    create = trajectory.client.chat.completions.create
                    if step % 2:
                        stream = await create(**ask, user=f"{n}-{step}", stream=True)
                        async for _ in stream:
                            if source.random() < 0.2:
                                break
                        await stream.close()
                    else:
                        await create(**ask, user=f"{n}-{step}")
                    done.turns += 1
                except Exception:
                    done.failed += 1
                if source.random() < 0.01:
                    trajectory.cancel()
                try:
                    async with trajectory.environment():
                        done.jobs += 1
                        await anyio.sleep(5 if source.random() < 0.001 else 0.001)
                except EnvironmentTimeout:
                    done.timeouts += 1

        ask = dict(ask)
        number = 0
        while time.monotonic() < ends_s:
            await batch.map(solve, range(number, number + 300), key=str)
            number += 300
            server.received.clear()  # the server's own record would be the leak
            done.memory.append(_megabytes())
            descriptors.append(process.num_fds())
        drift = _drift(batch, done)
        connections = server.connections
    return {
        "seconds": seconds,
        "turns": done.turns,
        "trajectories": done.trajectories,
        "turns_failed_for_good": done.failed,
        "environment_timeouts": done.timeouts,
        "drift": drift,
        "memory_mb": round(done.memory[-1], 1),
        "memory_growth_mb": round(_growth(done.memory), 2) if len(done.memory) >= 8 else None,
        "descriptors": [min(descriptors), max(descriptors)],
        "connections_at_the_end": connections,
    }


def run(quick: bool = False) -> dict:
    """Return the figures of both; `quick` makes 20,000 turns and takes five real seconds.

    Raises:
        AssertionError: a counter drifted, something was left open, or memory grew by more than `MOST_GROWTH_MB`.
    """
    virtual = virtual_clock.run(_virtual, 20_000 if quick else VIRTUAL_TURNS, Done())
    real = anyio.run(_real, 5.0 if quick else REAL_S, Done())
    for name, figures in (("virtual", virtual), ("real", real)):
        off = {counter: by for counter, by in figures["drift"].items() if by}
        assert not off, f"{name}: {off} in {figures}"
        assert (figures["memory_growth_mb"] or 0.0) <= MOST_GROWTH_MB, f"{name}: memory grew: {figures}"
    assert real["descriptors"][1] <= 2 * 64 + 40, f"descriptors: {real}"  # both ends of CS connections are ours here
    return {"virtual": virtual, "real": real, "goal": f"drift 0 everywhere; memory growth <= {MOST_GROWTH_MB} MB"}
