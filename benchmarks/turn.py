"""A turn through `traj.client` against the same call on a bare AsyncOpenAI, and against stock openai.

64 in flight against a bare echo server; five rounds of short interleaved blocks; the median of the
rounds, and of a round's blocks, of the ratio of neighbours.
"""

import statistics
import time

import anyio
import openai

from agentbatch import AgentBatch
from agentbatch.runtime.transport import build_http_client
from benchmarks.echo import echo_server

IN_FLIGHT = 64
BLOCK = 256
MESSAGES = [{"role": "user", "content": "a short question about the weather " * 6}]


async def _storm(create, calls: int) -> float:
    """Make `calls` calls, 64 at a time; returns seconds."""
    left = iter(range(calls))

    async def worker(n: int) -> None:
        for _ in left:
            await create(n)

    began = time.perf_counter()
    async with anyio.create_task_group() as group:
        for n in range(IN_FLIGHT):
            group.start_soon(worker, n)
    return time.perf_counter() - began


def _rounds(ours: list[float], theirs: list[float], rounds: int) -> list[float]:
    """Return each round's median ratio of blocks that ran side by side."""
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    size = len(ratios) // rounds
    return [statistics.median(ratios[at * size : (at + 1) * size]) for at in range(rounds)]


async def _measure(url: str, calls: int, rounds: int) -> dict:
    options = {"api_key": "EMPTY", "base_url": url, "max_retries": 0}
    bare = openai.AsyncOpenAI(http_client=build_http_client(IN_FLIGHT, 600.0), **options)
    stock = openai.AsyncOpenAI(**options)
    seconds: dict[str, list[float]] = {"ours": [], "bare": [], "stock": []}
    async with AgentBatch(cs=IN_FLIGHT, ce=IN_FLIGHT, base_url=url) as batch, anyio.create_task_group() as group:
        trajectories: list = []
        done = anyio.Event()

        async def hold(key: int) -> None:
            async with batch.trajectory(key) as trajectory:
                trajectories.append(trajectory)
                await done.wait()

        for key in range(IN_FLIGHT):
            group.start_soon(hold, key)
        await anyio.wait_all_tasks_blocked()
        clients = [trajectory.client for trajectory in trajectories]

        ways = {
            "ours": lambda n: clients[n].chat.completions.create(model="m", messages=MESSAGES),
            "bare": lambda n: bare.chat.completions.create(model="m", messages=MESSAGES),
            "stock": lambda n: stock.chat.completions.create(model="m", messages=MESSAGES),
        }
        for create in ways.values():
            await _storm(create, 4 * IN_FLIGHT)
        for at in range(rounds * (calls // BLOCK)):  # short blocks in turn: a shared machine's moods hit all alike
            for name in list(ways) if at % 2 else list(ways)[::-1]:
                seconds[name].append(await _storm(ways[name], BLOCK))
        done.set()
    await bare.close()
    await stock.close()
    ratios = _rounds(seconds["ours"], seconds["bare"], rounds)
    faster = _rounds(seconds["stock"], seconds["ours"], rounds)
    return {
        "openai": openai.__version__,
        "us_per_call": {name: round(1e6 * statistics.median(all_) / BLOCK) for name, all_ in seconds.items()},
        "over_bare": round(statistics.median(ratios) - 1, 4),
        "over_bare_rounds": [round(ratio - 1, 3) for ratio in ratios],
        "times_stock": round(statistics.median(faster), 3),
        "goal": "over_bare <= 0.06, times_stock >= 1.3",
    }


def run(quick: bool = False) -> dict:
    """Return the ratios; `quick` makes a tenth of the calls."""
    with echo_server(0.0) as url:
        return anyio.run(_measure, url, 2 * BLOCK if quick else 10 * BLOCK, 5)
