"""What a turn through `traj.client` costs over the bare call, in instructions: repeatable where seconds are not.

Counted by valgrind's callgrind as the difference of a long and a short run, so that start-up cancels out. Takes a few
minutes, and valgrind must be installed; not among those that run by default.
"""

import os
import re
import shutil
import subprocess
import sys

import anyio
import openai

from agentbatch import AgentBatch
from agentbatch.runtime.transport import build_http_client
from benchmarks.echo import echo_server
from benchmarks.turn import IN_FLIGHT, MESSAGES

WAYS = ("bare", "ours")


async def _calls(way: str, calls: int, url: str) -> None:
    bare = openai.AsyncOpenAI(
        api_key="EMPTY", base_url=url, max_retries=0, http_client=build_http_client(IN_FLIGHT, 600.0)
    )
    async with AgentBatch(cs=IN_FLIGHT, ce=1, base_url=url) as batch, batch.trajectory("x") as trajectory:
        client = {"bare": bare, "ours": trajectory.client}[way]
        left = iter(range(calls))

        async def worker() -> None:
            for _ in left:
                await client.chat.completions.create(model="m", messages=MESSAGES)

        async with anyio.create_task_group() as group:
            for _ in range(IN_FLIGHT):
                group.start_soon(worker)
    await bare.close()


def _instructions(way: str, calls: int, url: str) -> int:
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", sys.executable, "-m"]
    done = subprocess.run(
        [*command, "benchmarks.instructions", way, str(calls), url],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    return int(re.search(r"Collected : (\d+)", done.stderr)[1])


def run(quick: bool = False) -> dict:
    """Return instructions a call for both, and the overhead."""
    if shutil.which("valgrind") is None:
        return {"missing": "valgrind is not installed: nothing was measured"}
    short, long = IN_FLIGHT, (2 if quick else 6) * IN_FLIGHT
    with echo_server(0.0) as url:
        each = {
            way: (_instructions(way, long, url) - _instructions(way, short, url)) / (long - short) for way in WAYS
        }
    return {
        "openai": openai.__version__,
        "instructions_per_call": {way: round(count) for way, count in each.items()},
        "over_bare": round(each["ours"] / each["bare"] - 1, 4),
        "goal": "over_bare <= 0.06",
    }


if __name__ == "__main__":
    anyio.run(_calls, sys.argv[1], int(sys.argv[2]), sys.argv[3])
