"""2,000 tasks x 5 turns of 0.5 s, all at once: really 2,000 in flight, no error, in one process; and the rivals.

Rivals in the same run: hand-written asyncio (a semaphore around an AsyncOpenAI on aiohttp, its cap lifted by hand), and
stock AsyncOpenAI, whose pool silently stops at 1,000.
"""

import asyncio
import json
import resource
import subprocess
import sys
import time

import openai

from benchmarks.echo import echo_server, peak_in_flight

TURNS, DELAY_S = 5, 0.5
MESSAGES = [{"role": "user", "content": "a short question"}]


async def ours(url: str, tasks: int) -> int:
    """Run the batch through AgentBatch; returns tasks completed."""
    from agentbatch import AgentBatch

    async def solve(trajectory, _):
        for _ in range(TURNS):
            await trajectory.client.chat.completions.create(model="m", messages=MESSAGES)

    async with AgentBatch(cs=tasks, ce=1, base_url=url) as batch:
        return sum(result.ok for result in await batch.map(solve, range(tasks)))


async def by_hand(url: str, tasks: int, http_client=None) -> int:
    """Run the batch as a person would write it with asyncio."""
    client = openai.AsyncOpenAI(api_key="EMPTY", base_url=url, max_retries=0, http_client=http_client)
    gate = asyncio.Semaphore(tasks)

    async def solve():
        async with gate:
            for _ in range(TURNS):
                await client.chat.completions.create(model="m", messages=MESSAGES)

    results = await asyncio.gather(*(solve() for _ in range(tasks)), return_exceptions=True)
    await client.close()
    return sum(not isinstance(result, BaseException) for result in results)


async def by_hand_aiohttp(url: str, tasks: int) -> int:
    """The same on aiohttp, with the cap on connections lifted."""
    limits = type(openai.DEFAULT_CONNECTION_LIMITS)(max_connections=0, max_keepalive_connections=None)
    return await by_hand(url, tasks, openai.DefaultAioHttpClient(limits=limits))


WAYS = {"agentbatch": ours, "asyncio on aiohttp, cap lifted": by_hand_aiohttp, "asyncio, stock openai": by_hand}


def measure(way: str, tasks: int) -> dict:
    """Run one way against a server of its own."""
    with echo_server(DELAY_S) as url:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.perf_counter()
        completed = asyncio.run(WAYS[way](url, tasks))
        seconds = time.perf_counter() - began
        return {
            "completed": completed,
            "turns_per_s": round(tasks * TURNS / seconds),
            "peak_in_flight": peak_in_flight(url),
            "max_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
            "grown_mb": round((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024),
        }


def run(quick: bool = False) -> dict:
    """Measure each way in a fresh process, for an honest peak of memory."""
    tasks = 300 if quick else 2000
    rows = {}
    for way in WAYS:
        command = [sys.executable, "-m", "benchmarks.overload", way, str(tasks)]
        rows[way] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    ours_row, hand = rows["agentbatch"], rows["asyncio on aiohttp, cap lifted"]
    return {
        "ways": rows,
        "times_by_hand": round(ours_row["turns_per_s"] / hand["turns_per_s"], 3),
        "goal": "2,000 completed, peak 2,000, >= 600 turns/s, <= 200 MB",
    }


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
