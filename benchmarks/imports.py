"""What importing costs: `import agentbatch` beside `import openai`, and that the policies load nothing else."""

import subprocess
import sys
import time

FOREIGN = """
import sys
before = set(sys.modules)
import agentbatch.policy.slots, agentbatch.policy.caas, agentbatch.policy.lbch
names = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(names - set(sys.stdlib_module_names) - {"agentbatch"}))
"""


def _seconds(code: str) -> float:
    times = []
    for _ in range(7):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        times.append(time.perf_counter() - began)
    return min(times)


def run(quick: bool = False) -> dict:
    """Return milliseconds over a bare interpreter."""
    bare = _seconds("pass")
    foreign = subprocess.run([sys.executable, "-c", FOREIGN], check=True, capture_output=True, text=True)
    return {
        "ms_over_bare_python": {
            "import agentbatch": round(1e3 * (_seconds("import agentbatch") - bare), 1),
            "from agentbatch import AgentBatch": round(1e3 * (_seconds("from agentbatch import AgentBatch") - bare), 1),
            "import openai": round(1e3 * (_seconds("import openai") - bare), 1),
        },
        "third_party_modules_of_policy": foreign.stdout.strip(),
        "goal": "import agentbatch <= 80 ms, no third-party module in policy",
    }
