"""How long an environment slot is held beyond its work, with 50 trajectories active: seconds held / seconds asked.

Every trajectory makes model calls against a bare echo server between its jobs, so that the event loop is as busy as a
batch keeps it. The rival is the same loop around an `asyncio.Semaphore`, in the same run.
"""

import asyncio
import random

import openai

from agentbatch import AgentBatch
from agentbatch.events import JobEnded
from agentbatch.runtime.transport import build_http_client
from benchmarks.echo import echo_server

TRAJECTORIES, CE = 50, 8
MESSAGES = [{"role": "user", "content": "a short question"}]


def _jobs(key: int, turns: int) -> list[float]:
    source = random.Random(key)
    return [source.uniform(0.05, 0.25) for _ in range(turns)]


async def _ours(url: str, turns: int) -> float:
    held: list[float] = []

    def listen(event) -> None:
        if isinstance(event, JobEnded):
            held.append(event.ended_s - event.granted_s)

    async def solve(trajectory, key: int) -> None:
        for seconds in _jobs(key, turns):
            await trajectory.client.chat.completions.create(model="m", messages=MESSAGES)
            async with trajectory.environment():
                await asyncio.sleep(seconds)

    async with AgentBatch(cs=TRAJECTORIES, ce=CE, base_url=url, on_event=listen) as batch:
        results = await batch.map(solve, range(TRAJECTORIES))
        assert all(result.ok for result in results)
    return sum(held)


async def _semaphore(url: str, turns: int) -> float:
    held: list[float] = []
    gate = asyncio.Semaphore(CE)
    clock = asyncio.get_running_loop().time
    client = openai.AsyncOpenAI(api_key="EMPTY", base_url=url, http_client=build_http_client(TRAJECTORIES, 600.0))

    async def solve(key: int) -> None:
        for seconds in _jobs(key, turns):
            await client.chat.completions.create(model="m", messages=MESSAGES)
            async with gate:
                began = clock()
                await asyncio.sleep(seconds)
                held.append(clock() - began)

    await asyncio.gather(*(solve(key) for key in range(TRAJECTORIES)))
    await client.close()
    return sum(held)


def run(quick: bool = False) -> dict:
    """Return held / asked for both."""
    turns = 3 if quick else 10
    asked = sum(sum(_jobs(key, turns)) for key in range(TRAJECTORIES))
    with echo_server(0.02) as url:
        ours = asyncio.run(_ours(url, turns)) / asked
        semaphore = asyncio.run(_semaphore(url, turns)) / asked
    return {
        "agentbatch": round(ours, 4),
        "asyncio.Semaphore": round(semaphore, 4),
        "goal": "agentbatch <= 1.02",
    }
