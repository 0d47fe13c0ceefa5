"""10,000 trajectories active at once in one process: kilobytes each, beyond what the harness's own tasks take.

Each trajectory has used its client and holds its slot. The rival is the same number of asyncio tasks waiting alike.
"""

import asyncio
import gc
import json
import os
import subprocess
import sys

import psutil


async def _agentbatch(count: int, url: str) -> int:
    from agentbatch import AgentBatch

    done, all_active = asyncio.Event(), asyncio.Event()

    async def solve(trajectory, n: int) -> None:
        assert trajectory.client.chat.completions is not None
        if n == count - 1:
            all_active.set()
        await done.wait()

    async with AgentBatch(cs=count, ce=3, base_url=url) as batch:
        before = _rss()
        running = asyncio.create_task(batch.map(solve, range(count)))
        await asyncio.wait_for(all_active.wait(), 120)
        await asyncio.sleep(1)
        used = _rss() - before
        done.set()
        assert sum(result.ok for result in await running) == count
    return used


async def _tasks(count: int, url: str) -> int:
    done = asyncio.Event()

    async def solve(_) -> None:
        await done.wait()

    before = _rss()
    tasks = [asyncio.create_task(solve(n)) for n in range(count)]
    await asyncio.sleep(1)
    used = _rss() - before
    done.set()
    await asyncio.gather(*tasks)
    return used


def _rss() -> int:
    gc.collect()
    return psutil.Process(os.getpid()).memory_info().rss


def run(quick: bool = False) -> dict:
    """Return kilobytes per trajectory, each way in a process of its own."""
    count = 1000 if quick else 10_000
    kilobytes = {}
    for way in ("agentbatch", "tasks"):
        command = [sys.executable, "-m", "benchmarks.active", way, str(count)]
        used = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        kilobytes[way] = round(used / count / 1000, 2)
    return {
        "trajectories": count,
        "kB_each": kilobytes,
        "kB_each_beyond_the_task": round(kilobytes["agentbatch"] - kilobytes["tasks"], 2),
        "goal": "<= 20 kB beyond the harness's own",
    }


if __name__ == "__main__":
    import resource

    from benchmarks.echo import echo_server

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    way, count = sys.argv[1], int(sys.argv[2])
    with echo_server(0.0) as url:
        print(json.dumps(asyncio.run({"agentbatch": _agentbatch, "tasks": _tasks}[way](count, url))))
