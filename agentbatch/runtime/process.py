"""Runs a command as an operation of a job, and ends its whole process group when it must stop.

A tool's shell starts further processes; killing the shell alone leaves them. So the command leads a group of its own:
SIGTERM to the group, then SIGKILL to whatever ignored it. The slot stays taken until the group is gone (miles#1012).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import ByteReceiveStream, Process

from agentbatch.errors import UsageError
from agentbatch.runtime.checks import is_number

if TYPE_CHECKING:
    from agentbatch.runtime.background import Background
    from agentbatch.runtime.job import EnvironmentJob

KILLED_WITHIN_S = 5.0
"""How long a caller waits, wall seconds, for a group that was sent SIGKILL; later than that it goes on alone."""

DRAINED_WITHIN_S = 0.5

POLL_S = 0.02


async def run_in_group(
    command: str | Sequence[str],
    *,
    stdin: bytes,
    cwd: str | os.PathLike[str] | None,
    env: Mapping[str, str] | None,
    grace_s: float,
    job: EnvironmentJob,
    beside: Background,
) -> subprocess.CompletedProcess[bytes]:
    """Run `command` to its end and return its status and output; when cancelled, end its whole group first.

    Args:
        command: a list of arguments, or a line for the shell.
        grace_s: wall seconds between SIGTERM and SIGKILL.
        job: keeps its slot until the group is gone. beside: takes over a group that outlives SIGKILL.

    Raises:
        OSError: the command cannot be started.
        UsageError: `stdin` is not bytes, or `grace_s` is no number of seconds; nothing was started.
    """
    if not isinstance(stdin, (bytes, bytearray, memoryview)):
        raise UsageError(f"run_process takes stdin as bytes, not {type(stdin).__name__}: encode it first")
    if not is_number(grace_s) or not 0 <= grace_s < float("inf"):
        raise UsageError(f"grace_s must be a number of seconds, 0 or more, not {grace_s!r}")
    options: dict[str, Any] = {"cwd": cwd, "env": env, "start_new_session": sys.platform != "win32"}
    pipe = subprocess.PIPE
    start = _Start(partial(anyio.open_process, command, stdin=pipe, stdout=pipe, stderr=pipe, **options))
    beside.start_soon(beside.linger, start.run)
    output = {"stdout": bytearray(), "stderr": bytearray()}
    try:
        await start.ended.wait()
        process = start.process()
        async with anyio.create_task_group() as group:
            group.start_soon(_feed, process, stdin)
            for name, stream in (("stdout", process.stdout), ("stderr", process.stderr)):
                group.start_soon(_read, stream, output[name])
        status = await process.wait()
    except BaseException as error:
        job.output = bytes(output["stdout"]), bytes(output["stderr"])
        with anyio.CancelScope(shield=True):  # bounded: the start, the grace, then KILLED_WITHIN_S
            await start.ended.wait()
            if start.error is None:
                await _end(start.process(), grace_s, error, job, beside)
        raise
    await process.aclose()
    return subprocess.CompletedProcess(command, status, bytes(output["stdout"]), bytes(output["stderr"]))


class _Start:
    """Starts a command in a task that nobody cancels: half-way, asyncio would kill its leader alone and lose its pipes.

    Args:
        open_process: starts it.
    """

    def __init__(self, open_process: Callable[[], Awaitable[Process]]) -> None:
        self._open_process = open_process
        self._process: Process | None = None
        self.ended = anyio.Event()
        self.error: BaseException | None = None

    async def run(self) -> None:
        """Start it; whatever goes wrong is the caller's affair."""
        try:
            self._process = await self._open_process()
        except Exception as error:
            self.error = error
        except BaseException as error:
            self.error = error
            raise
        finally:
            self.ended.set()

    def process(self) -> Process:
        """Return what was started, or raise why it was not."""
        if self._process is None:
            assert self.error is not None  # noqa: S101 - asked once it has ended
            raise self.error
        return self._process


async def _feed(process: Process, data: bytes) -> None:
    stdin = process.stdin
    assert stdin is not None  # noqa: S101 - a pipe was asked for
    try:
        await stdin.send(data)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass  # the command did not care for all of its input
    finally:
        await stdin.aclose()


async def _read(stream: ByteReceiveStream | None, output: bytearray) -> None:
    assert stream is not None  # noqa: S101 - a pipe was asked for
    async for chunk in stream:
        output += chunk


async def _end(process: Process, grace_s: float, error: BaseException, job: EnvironmentJob, beside: Background) -> None:
    """Stop the group, kindly and then not; hand what is left to a task beside the batch."""
    _signal(process, signal.SIGTERM)
    if not await _gone(process, grace_s):
        job.overrun(error, f"process group {process.pid}, which ignored SIGTERM for {grace_s:g} s and is killed,")
        _signal(process, getattr(signal, "SIGKILL", signal.SIGTERM))
        if not await _gone(process, KILLED_WITHIN_S):
            beside.start_soon(beside.linger, lambda: _outlive(process, job))
            job.join()
            return
    await _close(process)


async def _outlive(process: Process, job: EnvironmentJob) -> None:
    """Keep the slot for a group that not even SIGKILL ends, such as one stuck in the kernel."""
    try:
        await _gone(process, float("inf"))
        await _close(process)
    finally:
        job.leave(None)


async def _close(process: Process) -> None:
    """Read the pipes of an ended group to their ends, so that the event loop lets go of them, and close."""
    with anyio.move_on_after(DRAINED_WITHIN_S):  # something that left the group may hold them open
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                async for _ in stream:
                    pass
    await process.aclose()


async def _gone(process: Process, within_s: float) -> bool:
    """Wait until every process of the group has ended; False when some have not `within_s` wall seconds later."""
    with anyio.move_on_after(within_s):
        await process.wait()
        while _has_members(process):  # noqa: ASYNC110 - nobody tells when a group is empty
            await anyio.sleep(POLL_S)
        return True
    return False


def _has_members(process: Process) -> bool:
    if sys.platform == "win32":
        return False
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # a member that changed its user: it is there
        return True
    return _members_live(process.pid)


def _members_live(group: int) -> bool:
    """Tell whether a group has a member that is more than a zombie, which a container's PID 1 may never bury."""
    entries = list(Path("/proc").glob("[0-9]*/stat"))
    for entry in entries:
        try:
            # "pid (name) state parent group …", and a name may hold anything
            state, _, its_group = entry.read_text(errors="replace").rpartition(")")[2].split()[:3]
        except OSError:  # gone meanwhile
            continue
        if int(its_group) == group and state not in ("Z", "X"):
            return True
    return not entries  # no /proc: then what the kernel answered stands


def _signal(process: Process, number: int) -> None:
    try:
        if sys.platform == "win32":
            process.terminate()
        else:
            os.killpg(process.pid, number)
    except ProcessLookupError:
        pass
