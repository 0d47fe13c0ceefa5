"""Environment-heavy real traces on two emulated workers, CE 3: separate limits against the unified gate.

The environment-heavy part of the sample (its claude_code trajectories), waits capped at 120 s, in the file's own order.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

SAMPLE = Path(__file__).parent.parent / "examples" / "traces" / "sample.jsonl"


def _replay(trace: str, *options: str) -> dict:
    command = [sys.executable, "-m", "agentbatch", "replay", trace, "--emulate", "2", "--ce", "3", "--json"]
    done = subprocess.run([*command, *options], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def run(quick: bool = False) -> dict:
    """Return makespans and the reduction."""
    lines = [line for line in SAMPLE.read_text().splitlines() if json.loads(line).get("domain") == "claude-code"]
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as trace:
        trace.write("\n".join(lines[: 20 if quick else None]) + "\n")
        trace.flush()
        common = ("--user-cap-s", "120", "--speedup", "200")
        unified = _replay(trace.name, "--unified", "--cs", "3", "--env-policy", "fcfs", *common)
        rows = {"unified, CS = CE = 3": unified}
        for cs in ("40", "50"):
            rows[f"CS {cs}, CE 3, CAAS"] = _replay(trace.name, "--cs", cs, *common)
    return {
        "makespan_s": {name: round(row["makespan_s"]) for name, row in rows.items()},
        "completed": {name: row["completed"] for name, row in rows.items()},
        "environment_share": {name: round(row["environment_share"], 3) for name, row in rows.items()},
        "lower_bound_s": round(unified["lower_bound_s"]),
        "reduction": {
            name: round(1 - row["makespan_s"] / unified["makespan_s"], 3)
            for name, row in rows.items()
            if row is not unified
        },
        "goal": "reduction >= 0.33, all completed",
    }
