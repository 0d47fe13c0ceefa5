"""Emulated workers in a child process: from plain code, from trio, or to keep their work off this loop."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import IO

import anyio.to_thread

import agentbatch
from agentbatch.emulator.settings import Settings
from agentbatch.errors import StartUpError, UsageError
from agentbatch.sim import DEFAULT_PRESET

_START_S = 30.0
_STOP_S = 5.0


class Spawned:
    """Workers in a child process; enter it with `with` or `async with`, use `urls` inside.

    The child ends with the block, and also when this process dies: it watches a pipe from here.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.urls: list[str] = []
        self._child: subprocess.Popen[bytes] | None = None
        self._complaints: IO[bytes] | None = None

    @property
    def speedup(self) -> float:
        """Trace seconds per wall second."""
        return self.settings.speedup

    @property
    def pid(self) -> int | None:
        """The child's process id while it runs."""
        return None if self._child is None else self._child.pid

    def __enter__(self) -> Spawned:
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    async def __aenter__(self) -> Spawned:
        with anyio.CancelScope(shield=True):  # bounded by _START_S; a half-started child must not be lost
            await anyio.to_thread.run_sync(self._start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._stop)

    def __repr__(self) -> str:
        return f"<Spawned pid={self.pid} {' '.join(self.urls)}>"

    def _start(self) -> None:
        if self._child is not None:
            raise UsageError("this emulator runs already; call spawn() again for another")
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed by _stop
        self._child = subprocess.Popen(
            [sys.executable, "-m", "agentbatch.emulator"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._complaints,
            env=_environment(), start_new_session=True,  # Ctrl-C in a terminal is for the parent alone
        )
        try:
            self.urls = self._handshake(self._child)
        except BaseException:
            self._stop()
            raise

    def _handshake(self, child: subprocess.Popen[bytes]) -> list[str]:
        if child.stdin is None or child.stdout is None:
            raise AssertionError("the child was started with pipes")
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(json.dumps(asdict(self.settings)).encode() + b"\n")
            child.stdin.flush()
        timer = threading.Timer(_START_S, child.kill)
        timer.start()
        try:
            line = child.stdout.readline()
        finally:
            timer.cancel()
            timer.join()
        answer = json.loads(line) if line else {}
        if "urls" in answer:
            return list(answer["urls"])
        if answer.get("kind") == UsageError.__name__:
            raise UsageError(answer["error"])
        reason = answer.get("error") or f"the emulator's process did not start: {self._last_words()}"
        raise StartUpError(reason)

    def _last_words(self) -> str:
        if self._complaints is None:
            return "no output"
        self._complaints.seek(0)
        lines = self._complaints.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"no answer within {_START_S:g} s and no output"

    def _stop(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
            try:
                child.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        if self._complaints is not None:
            self._complaints.close()
            self._complaints = None


def spawn(
    *,
    workers: int = 2,
    base_port: int = 0,
    speedup: float = 60.0,
    preset: str = DEFAULT_PRESET,
    schedule_policy: str = "fcfs",
    kv_tokens: int | None = None,
    state_slots: int | None = None,
    script: str | Path | None = None,
    host: str = "127.0.0.1",
    token: str | None = None,
) -> Spawned:
    """Describe emulated workers in a child process, started by `with` or `async with` (asyncio or trio).

    Args:
        script: file of scripted replies (a callable cannot cross to another process; use `serve` for one).
        workers, base_port, speedup, preset, schedule_policy, kv_tokens, state_slots, host, token: see
            `Settings`.

    Raises:
        UsageError: a value out of range.
        StartUpError: on entering, a port is in use or the child does not come up within 30 s.
    """
    return Spawned(Settings(
        workers=workers, base_port=base_port, speedup=speedup, preset=preset, schedule_policy=schedule_policy,
        kv_tokens=kv_tokens, state_slots=state_slots, host=host, token=token,
        script=None if script is None else str(script),
    ))


def _environment() -> dict[str, str]:
    """Let the child import the same agentbatch, installed or not."""
    home = str(Path(next(iter(agentbatch.__path__))).parent)
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": home if not path else f"{home}{os.pathsep}{path}"}
