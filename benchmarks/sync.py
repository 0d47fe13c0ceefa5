"""A turn through `traj.client` of a synchronous trajectory against the same call on a bare OpenAI, 50 threads each.

Both on the same transport, against a bare echo server; beside it the asynchronous overhead at as many in flight.
Short interleaved blocks; the median of the rounds, and of a round's blocks, of the ratio of neighbours.
"""

import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import anyio
import openai

from agentbatch import AgentBatch, SyncAgentBatch
from agentbatch.runtime.transport import build_http_client, build_sync_http_client
from benchmarks.echo import echo_server
from benchmarks.turn import MESSAGES, _rounds

THREADS = 50
BLOCK = 200


def _hold(batch: SyncAgentBatch, stack: ExitStack) -> list:
    """Admit one trajectory a thread; returns their clients."""
    clients: list = []
    done = threading.Event()
    admitted = threading.Barrier(THREADS + 1)

    def hold(key: int) -> None:
        with batch.trajectory(key) as trajectory:
            clients.append(trajectory.client)
            admitted.wait()
            done.wait()

    threads = [threading.Thread(target=hold, args=(key,)) for key in range(THREADS)]
    for thread in threads:
        thread.start()
    admitted.wait()
    for thread in threads:
        stack.callback(thread.join)
    stack.callback(done.set)
    return clients


def _storm(pool: ThreadPoolExecutor, clients: list, calls: int) -> float:
    """Make `calls` calls, one at a time in each of 50 threads; returns seconds."""
    left = iter(range(calls))
    start = threading.Barrier(THREADS + 1)

    def worker(client: openai.OpenAI) -> None:
        start.wait()
        for _ in left:
            client.chat.completions.create(model="m", messages=MESSAGES)

    futures = [pool.submit(worker, client) for client in clients]
    start.wait()
    began = time.perf_counter()
    for future in futures:
        future.result()
    return time.perf_counter() - began


def _measure(url: str, blocks: int, rounds: int) -> dict:
    seconds: dict[str, list[float]] = {"ours": [], "bare": []}
    http_client = build_sync_http_client(THREADS, 600.0)
    bare = openai.OpenAI(api_key="EMPTY", base_url=url, max_retries=0, http_client=http_client)
    with (
        ExitStack() as stack,
        SyncAgentBatch(cs=THREADS, ce=1, base_url=url) as batch,
        ThreadPoolExecutor(THREADS) as pool,
        ExitStack() as held,
    ):
        stack.callback(http_client.close)
        ways = {"ours": _hold(batch, held), "bare": [bare] * THREADS}
        for clients in ways.values():
            _storm(pool, clients, 4 * THREADS)
        for at in range(rounds * blocks):
            for name in list(ways) if at % 2 else list(ways)[::-1]:
                seconds[name].append(_storm(pool, ways[name], BLOCK))
        lag = batch.statistics().loop_lag
    ratios = _rounds(seconds["ours"], seconds["bare"], rounds)
    return {
        "us_per_call": {name: round(1e6 * statistics.median(all_) / BLOCK) for name, all_ in seconds.items()},
        "over_bare": round(statistics.median(ratios) - 1, 4),
        "over_bare_rounds": [round(ratio - 1, 3) for ratio in ratios],
        "loop_lag_ms": None if lag is None else {"mean": round(1e3 * lag.mean_s, 1), "worst": round(1e3 * lag.worst_s)},
    }


async def _measure_async(url: str, blocks: int, rounds: int) -> dict:
    seconds: dict[str, list[float]] = {"ours": [], "bare": []}
    bare = openai.AsyncOpenAI(
        api_key="EMPTY", base_url=url, max_retries=0, http_client=build_http_client(THREADS, 600.0)
    )

    async def storm(clients: list, calls: int) -> float:
        left = iter(range(calls))

        async def worker(client: openai.AsyncOpenAI) -> None:
            for _ in left:
                await client.chat.completions.create(model="m", messages=MESSAGES)

        began = time.perf_counter()
        async with anyio.create_task_group() as group:
            for client in clients:
                group.start_soon(worker, client)
        return time.perf_counter() - began

    async with AgentBatch(cs=THREADS, ce=1, base_url=url) as batch, anyio.create_task_group() as group:
        clients: list = []
        done = anyio.Event()

        async def hold(key: int) -> None:
            async with batch.trajectory(key) as trajectory:
                clients.append(trajectory.client)
                await done.wait()

        for key in range(THREADS):
            group.start_soon(hold, key)
        await anyio.wait_all_tasks_blocked()
        ways = {"ours": clients, "bare": [bare] * THREADS}
        for some in ways.values():
            await storm(some, 4 * THREADS)
        for at in range(rounds * blocks):
            for name in list(ways) if at % 2 else list(ways)[::-1]:
                seconds[name].append(await storm(ways[name], BLOCK))
        done.set()
    await bare.close()
    return {
        "us_per_call": {name: round(1e6 * statistics.median(all_) / BLOCK) for name, all_ in seconds.items()},
        "over_bare": round(statistics.median(_rounds(seconds["ours"], seconds["bare"], rounds)) - 1, 4),
    }


def run(quick: bool = False) -> dict:
    """Return both overheads; `quick` makes a fifth of the calls."""
    blocks, rounds = (2, 3) if quick else (6, 5)
    with echo_server(0.0) as url:
        return {
            "openai": openai.__version__,
            "threads": THREADS,
            "sync": _measure(url, blocks, rounds),
            "async": anyio.run(_measure_async, url, blocks, rounds),
        }
