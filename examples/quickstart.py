"""Twelve coding agents under one AgentBatch: `python examples/quickstart.py`.

Their loop, tools and files are real. Only the model is scripted (`model` below) and served by an emulated worker inside
this process. With your own: leave `serve` out, give AgentBatch your server's base_url, and run code in a sandbox.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio

from agentbatch import AgentBatch, Result, Trajectory
from agentbatch.emulator import Reply, ToolCall, serve
from agentbatch.trace import Summary, read_run, summarize


async def solve(traj: Trajectory, task: str) -> bool:
    messages = [{"role": "system", "content": "You write Python."}, {"role": "user", "content": f"Write {task}."}]
    with TemporaryDirectory() as folder:  # one for each agent, gone however the agent ends
        for _ in range(8):  # an agent that goes round in circles must not hold its admission slot for ever
            reply = await traj.client.chat.completions.create(model="scripted", messages=messages, tools=TOOLS)
            message = reply.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                break
            async with traj.environment():  # tools inside, model calls outside: no slot idles while a model thinks
                for call in message.tool_calls:
                    result = await run_tool(folder, call.function.name, **json.loads(call.function.arguments))
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        async with traj.environment():  # graded by running the test, not by believing the model
            return await run_tool(folder, "run_python", TASKS[task][0]) == PASSED


async def main() -> tuple[list[Result[bool]], Summary, int]:
    with TemporaryDirectory() as folder:
        record = Path(folder, "run.jsonl")
        async with (
            serve(workers=1, speedup=20, script=model) as emulator,
            AgentBatch(cs=8, ce=2, base_url=emulator.urls, record=record) as batch,
        ):
            results = await batch.map(solve, TASKS, key=str)  # Completed or Failed, in input order
        return results, summarize(read_run(record)), max(emulator.peak_in_flight())


async def run_tool(folder: str, name: str, code: str) -> str:
    if name == "write_file":
        await anyio.Path(folder, "solution.py").write_text(code)
        return "written"
    # -B: a file mended within the second and not longer than before would be taken from its old byte code
    command = [sys.executable, "-B", "-c", f"from solution import *\n{code}"]
    with anyio.fail_after(10):  # begins with the slot, not with the wait for it
        done = await anyio.run_process(command, cwd=folder, check=False, stderr=subprocess.STDOUT)
    return done.stdout.decode() or PASSED


def model(messages: Sequence[Mapping[str, Any]]) -> Reply:
    """Decide as a model would, from the conversation alone: write, test, read the failure, mend, test, answer."""
    task, last = messages[1]["content"].removeprefix("Write ").removesuffix("."), messages[-1]
    test, first_try, mended = TASKS[task]
    if last["content"] == "written":
        return Reply(tool_calls=(ToolCall("run_python", {"code": test}),))
    if last["content"] == PASSED:
        return Reply("It passes its test.")
    body = first_try if last["role"] == "user" else mended
    return Reply("Let me see.", (ToolCall("write_file", {"code": f"def {task}:\n    return {body}\n"}),))


PASSED = "passed"
TASKS = {  # a function, its test, a first try that fails it, and one that passes
    "gcd(a, b)": ("assert gcd(12, 18) == 6", "gcd(b, a // b) if b else a", "gcd(b, a % b) if b else a"),
    "is_leap(y)": ("assert not is_leap(1900)", "y % 4 == 0", "y % 4 == 0 and (y % 100 != 0 or y % 400 == 0)"),
    "median(xs)": ("assert median([3, 1, 2]) == 2", "xs[len(xs) // 2]", "sorted(xs)[len(xs) // 2]"),
    "mean(xs)": ("assert mean([]) == 0", "sum(xs) / len(xs)", "sum(xs) / max(1, len(xs))"),
    "flatten(xs)": ("assert flatten([[1], [2, 3]]) == [1, 2, 3]", "list(xs)", "[y for x in xs for y in x]"),
    "clamp(x, lo, hi)": ("assert clamp(9, 0, 5) == 5", "max(lo, x)", "max(lo, min(x, hi))"),
    "unique(xs)": ("assert unique([2, 1, 2]) == [2, 1]", "sorted(set(xs))", "list(dict.fromkeys(xs))"),
    "initials(s)": ("assert initials('ada king') == 'AK'", "s[0].upper()", "''.join(w[0].upper() for w in s.split())"),
    "factorial(n)": ("assert factorial(0) == 1", "n * factorial(n - 1)", "n * factorial(n - 1) if n > 1 else 1"),
    "rotate(xs, k)": ("assert rotate([1, 2, 3], 1) == [3, 1, 2]", "xs[k:] + xs[:k]", "xs[-k:] + xs[:-k]"),
    "is_palindrome(s)": ("assert is_palindrome('Anna')", "s == s[::-1]", "s.lower() == s.lower()[::-1]"),
    "digits(n)": ("assert digits(-120) == [1, 2, 0]", "[int(c) for c in str(n)]", "[int(c) for c in str(abs(n))]"),
}
CODE = {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": name, "description": description, "parameters": CODE}}
    for name, description in (("write_file", "Replace solution.py."), ("run_python", "Run code that may use it."))
]

if __name__ == "__main__":
    results, figures, peak = asyncio.run(main())
    for result in results:
        print(f"{result.key:17}", f"{result.usage.turns} turns, {result.value}" if result.ok else repr(result.error))
    score = sum(result.ok and result.value for result in results)
    print(f"score {score}/{len(TASKS)}, at most {peak} model calls at once")
    print(f"makespan {figures.makespan_s:.2f} s, mean wait for a tool slot {figures.environment_wait_s:.2f} s")
    sys.exit(0 if score == len(TASKS) else 1)
