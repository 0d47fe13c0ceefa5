"""Twelve coding agents under one AgentBatch: `python examples/quickstart.py`.

Their loop, tools and files are real. Only the model is scripted (`model` below) and served by an emulated worker inside
this process. To run it on your own: leave `serve` out and give AgentBatch your server's base_url.
"""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
from agentbatch import AgentBatch
from agentbatch.emulator import Reply, ToolCall, serve
from agentbatch.trace import read_run, summarize


async def solve(traj, task):
    messages = [{"role": "system", "content": "You write Python."}, {"role": "user", "content": f"Write {task}."}]
    with TemporaryDirectory() as folder:  # one sandbox an agent, gone however the agent ends
        for _ in range(8):  # an agent that goes round in circles has failed, and must not hold its slot for ever
            reply = await traj.client.chat.completions.create(model="scripted", messages=messages, tools=TOOLS)
            message = reply.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                break
            async with traj.environment():  # tools run inside, model calls outside: a slot must never wait for a model
                for call in message.tool_calls:
                    result = await run_tool(folder, call.function.name, **json.loads(call.function.arguments))
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        async with traj.environment():  # graded by running the file, not by believing the model
            return await run_tool(folder, "run_python", code=TASKS[task][0]) == PASSED


async def main():
    with TemporaryDirectory() as folder:
        record = Path(folder, "run.jsonl")
        async with (
            serve(workers=1, speedup=20, script=model) as emulator,
            AgentBatch(cs=8, ce=2, base_url=emulator.urls, record=record) as batch,
        ):
            results = await batch.map(solve, TASKS, key=lambda task: task)
        return results, summarize(read_run(record)), max(emulator.peak_in_flight())


async def run_tool(folder, name, code):
    if name == "write_file":
        await anyio.Path(folder, "solution.py").write_text(code)
        return "written"
    # -B: a file rewritten within the second, at the same length, would be taken from the old byte code
    command = [sys.executable, "-B", "-c", f"from solution import *\n{code}"]
    done = await anyio.run_process(command, cwd=folder, check=False, stderr=subprocess.STDOUT)
    return done.stdout.decode() or PASSED


def model(messages):
    """Decide what a model would: write, test, read the failure, mend, answer. It sees the conversation and no more."""
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
    "is_prime(n)": ("assert not is_prime(1)", "all(n % d for d in range(2, n))", "n > 1 and all(n % d for d in range(2, n))"),
    "flatten(xs)": ("assert flatten([[1], [2, 3]]) == [1, 2, 3]", "list(xs)", "[y for x in xs for y in x]"),
    "clamp(x, lo, hi)": ("assert clamp(9, 0, 5) == 5", "max(lo, x)", "max(lo, min(x, hi))"),
    "unique(xs)": ("assert unique([2, 1, 2]) == [2, 1]", "sorted(set(xs))", "list(dict.fromkeys(xs))"),
    "initials(s)": ("assert initials('ada lovelace') == 'AL'", "s[0].upper()", "''.join(w[0].upper() for w in s.split())"),
    "fact(n)": ("assert fact(0) == 1", "n * fact(n - 1) if n > 1 else n", "n * fact(n - 1) if n > 1 else 1"),
    "rotate(xs, k)": ("assert rotate([1, 2, 3], 1) == [3, 1, 2]", "xs[k:] + xs[:k]", "xs[-k:] + xs[:-k]"),
    "is_palindrome(s)": ("assert is_palindrome('Anna')", "s == s[::-1]", "s.lower() == s.lower()[::-1]"),
    "digits(n)": ("assert digits(-120) == [1, 2, 0]", "[int(c) for c in str(n)]", "[int(c) for c in str(abs(n))]"),
}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": text, "parameters": {
        "type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}}}
    for name, text in (("write_file", "Replace solution.py."), ("run_python", "Import solution.py, then run code."))
]  # fmt: skip

if __name__ == "__main__":
    results, figures, peak = asyncio.run(main())
    for result in results:
        answer = f"{result.usage.turns} turns, {result.timing.active_s:.2f} s" if result.ok else repr(result.error)
        print(f"{result.key:17} {answer}")
    score = sum(result.ok and result.value for result in results)
    print(f"score {score}/{len(TASKS)}, makespan {figures.makespan_s:.2f} s, at most {peak} model calls at once")
    sys.exit(score != len(TASKS))
