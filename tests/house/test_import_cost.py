"""What an import loads: SGLang's scheduler process and a shell's tab key both pay for it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
POLICIES = [f"agentbatch.policy.{path.stem}" for path in (ROOT / "agentbatch/policy").glob("[a-z]*.py")]
HEAVY = {"aiohttp", "anyio", "httpx", "httpx2", "openai", "pydantic", "rich", "typer"}
REPORT = """
import importlib, json, sys
before = set(sys.modules)  # a .pth file may load modules of its own
for name in sys.argv[1:]:
    importlib.import_module(name)
print(json.dumps(sorted({name.partition(".")[0] for name in set(sys.modules) - before})))
"""


def loaded_by(modules: list[str], cwd: Path) -> set[str]:
    """Top-level names of the modules that a fresh interpreter loads for `modules`."""
    command = [sys.executable, "-I", "-c", REPORT, *modules]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def test_import_agentbatch_is_lazy(tmp_path: Path) -> None:
    assert not loaded_by(["agentbatch"], tmp_path) & HEAVY


@pytest.mark.parametrize("policy", ["slots", "caas", "lbch"])
def test_policy_is_here(policy: str) -> None:
    assert f"agentbatch.policy.{policy}" in POLICIES


@pytest.mark.parametrize(
    "modules",
    [
        pytest.param(POLICIES, id="policy"),
        pytest.param(["agentbatch.errors", "agentbatch.events", "agentbatch.wire"], id="errors-events-wire"),
        pytest.param(["agentbatch_sglang"], id="agentbatch_sglang"),
    ],
)
def test_what_the_scheduler_process_imports_is_stdlib_only(modules: list[str], tmp_path: Path) -> None:
    foreign = loaded_by(modules, tmp_path) - sys.stdlib_module_names
    assert foreign <= {"agentbatch", "agentbatch_sglang"}
