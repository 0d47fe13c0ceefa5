"""The real SGLang server as a context manager: launched on CPU with the stubbed model, always killed with its group."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

HERE = Path(__file__).parent
START_S = 180.0
"""How long a server may take to come up; 15 to 30 s is usual."""


class SglangMissing(Exception):
    """SGLang's environment is not there; says how to make it."""


def environment() -> Path:
    """Return SGLang's virtual environment: AGENTBATCH_SGLANG, or build/sglang as `make sglang` makes it."""
    venv = Path(os.environ.get("AGENTBATCH_SGLANG") or HERE.parents[1] / "build/sglang").absolute()
    if not (venv / "bin/python").exists():
        raise SglangMissing(
            f"the real SGLang is not installed in {venv}: run `make sglang`, or `tests/sglang/install.sh VENV` "
            "(Python 3.11, a minute, 1.7 GB) and set AGENTBATCH_SGLANG=VENV"
        )
    return venv


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How a server is started; the same figures configure the model of it."""

    policy: str = "fcfs"
    strategy: Literal["no_buffer", "extra_buffer", "extra_buffer_lazy"] = "extra_buffer"
    kv_tokens: int = 24_000
    state_slots: int = 90
    max_states_per_path: int = 1
    max_running_requests: int = 8
    chunked_prefill_tokens: int = 2048
    step_ms: float = 10.0
    prefill_token_us: float = 50.0
    decode_row_us: float = 500.0

    def flags(self) -> list[str]:
        """Return the launch flags that matter, for the command line and for the report."""
        flags = [
            "--schedule-policy", self.policy, "--mamba-radix-cache-strategy", self.strategy,
            "--max-total-tokens", str(self.kv_tokens), "--max-mamba-cache-size", str(self.state_slots),
            "--mamba-max-states-per-path", str(self.max_states_per_path),
            "--max-running-requests", str(self.max_running_requests),
            "--chunked-prefill-size", str(self.chunked_prefill_tokens),
        ]
        return [*flags, "--disable-overlap-schedule"] if self.strategy == "no_buffer" else flags

    @property
    def slots_per_request(self) -> int:
        """S_state, by which SGLang divides the state slots for the most that run (kv_cache_configurator.py:3062)."""
        return {"no_buffer": 3, "extra_buffer": 5, "extra_buffer_lazy": 4}[self.strategy]

    @property
    def cost(self) -> str:
        """STUB_COST of the stubbed model."""
        return f"{self.step_ms:g},{self.prefill_token_us:g},{self.decode_row_us:g}"


@dataclass(frozen=True, kw_only=True)
class Server:
    """A live server."""

    url: str
    log: Path
    """What the probe logs, one JSON object a line; the plugin's docstring lists them."""

    def get(self, path: str) -> Any:
        """GET JSON."""
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:
            return json.load(answer)

    def flush(self) -> None:
        """Empty the cache, as soon as the server is idle."""
        deadline = time.monotonic() + 30
        while True:
            request = urllib.request.Request(self.url + "/flush_cache", method="POST")
            with contextlib.suppress(urllib.error.HTTPError), urllib.request.urlopen(request, timeout=30):
                return
            if time.monotonic() > deadline:
                raise TimeoutError("the server was not idle within 30 s")
            time.sleep(0.1)

    def logged(self, offset: int = 0) -> list[dict[str, Any]]:
        """Return what was logged from byte `offset` on."""
        with self.log.open() as file:
            file.seek(offset)
            return [json.loads(line) for line in file]

    def log_size(self) -> int:
        """Return the log's length in bytes; 0 before its first line."""
        return self.log.stat().st_size if self.log.exists() else 0


def end_on_sigterm() -> None:
    """Let SIGTERM unwind the stack, so that no server outlives a job that was cancelled or ran out of time."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


@contextlib.contextmanager
def serving(launch: Launch) -> Iterator[Server]:
    """Start a server, wait until it answers, kill its process group at the end."""
    python = environment() / "bin/python"
    with tempfile.TemporaryDirectory(prefix="agentbatch-sglang-") as name:
        folder = Path(name)
        subprocess.run([python, HERE / "make_model.py", folder / "model"], check=True, capture_output=True, timeout=120)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [
            python, "-W", "ignore", "-m", "sglang.launch_server", "--host", "127.0.0.1", "--port", str(port),
            "--model-path", folder / "model", "--device", "cpu", "--load-format", "dummy",
            "--attention-backend", "torch_native", "--context-length", "32768", "--mem-fraction-static", "0.5",
            "--enable-cache-report", *launch.flags(),
        ]
        variables = {
            **os.environ, "HF_HUB_OFFLINE": "1", "SGLANG_USE_CPU_ENGINE": "1", "OMP_NUM_THREADS": "1",
            "SGLANG_EXTERNAL_MODEL_PACKAGE": "agentbatch_stub_models", "PYTHONPATH": str(HERE / "stubs"),
            "STUB_COST": launch.cost, "STUB_LOG": str(folder / "log.jsonl"),
        }
        server = Server(url=f"http://127.0.0.1:{port}", log=folder / "log.jsonl")
        with (folder / "output").open("wb") as output:
            process = subprocess.Popen(
                command, env=variables, stdout=output, stderr=output, cwd=folder, start_new_session=True
            )
        try:
            _wait_until_healthy(process, server.url, folder / "output")
            yield server
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_until_healthy(process: subprocess.Popen[bytes], url: str, output: Path) -> None:
    deadline = time.monotonic() + START_S
    while True:
        with contextlib.suppress(OSError), urllib.request.urlopen(url + "/health", timeout=5) as answer:
            if answer.status == 200:
                return
        if process.poll() is not None or time.monotonic() > deadline:
            tail = "\n".join(output.read_text(errors="replace").splitlines()[-25:])
            raise RuntimeError(f"SGLang did not come up (exit {process.returncode}):\n{tail}")
        time.sleep(0.3)
