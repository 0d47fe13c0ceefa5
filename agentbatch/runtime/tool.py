"""Runs one tool, whatever its kind: a coroutine function is awaited, anything else goes to a worker thread."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from agentbatch.errors import UsageError

if TYPE_CHECKING:
    from agentbatch.runtime.background import Background
    from agentbatch.runtime.job import EnvironmentJob


def is_async(tool: Callable[..., Any]) -> bool:
    """Tell whether calling `tool` gives a coroutine, through partials and callable objects."""
    while isinstance(tool, functools.partial):
        tool = tool.func
    return inspect.iscoroutinefunction(tool) or inspect.iscoroutinefunction(type(tool).__call__)


def check_plain(solve: Callable[..., Any], where: str) -> None:
    """Raise UsageError for a coroutine function, which a thread has no event loop for."""
    if is_async(solve):
        raise UsageError(f"{where} runs plain functions, and {solve!r} is a coroutine function: give it to map()")


async def run_tool(tool: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Return what `tool(*args)` returns, outside any job; a thread is waited for, since it cannot be stopped."""
    if is_async(tool):
        return await tool(*args)
    # boxed: trio refuses a thread that returns a coroutine, as decorated functions and lambdas may
    [result] = await anyio.to_thread.run_sync(lambda: [tool(*args)])
    return await result if inspect.isawaitable(result) else result


async def run_in_job(tool: Callable[..., Any], args: tuple[Any, ...], job: EnvironmentJob, beside: Background) -> Any:
    """Return what `tool(*args)` returns, as an operation of `job`.

    A thread cannot be stopped. When its caller is cancelled or its time is up, the caller goes on at once, and the slot
    stays taken until the thread ends: an overrun (miles#1012).
    """
    if is_async(tool):
        return await tool(*args)
    thread = _Thread(tool, args, job)
    beside.start_soon(beside.linger, thread.run, name=f"{job!r} thread")
    job.join()  # not before: nobody would leave where the batch has ended
    try:
        await thread.ended.wait()
    except BaseException as error:
        if not thread.ended.is_set():
            thread.abandoned = True
            job.overrun(error, "a thread")
        raise
    if thread.error is not None:
        try:
            raise thread.error
        finally:
            thread.error = None  # no cycle of error, traceback and this frame
    [result] = thread.result
    return await result if inspect.isawaitable(result) else result


class _Thread:
    """A tool in a worker thread; its task keeps the job's slot until the thread has ended."""

    def __init__(self, tool: Callable[..., Any], args: tuple[Any, ...], job: EnvironmentJob) -> None:
        self._tool = tool
        self._args = args
        self._job = job
        self.ended = anyio.Event()
        self.abandoned = False
        self.result: list[Any] = []
        self.error: BaseException | None = None

    def _call(self) -> None:
        # boxed: trio refuses a thread that returns a coroutine, as decorated functions and lambdas may
        try:
            self.result = [self._tool(*self._args)]
        except BaseException as error:  # handed to the caller, who alone may let it rise
            self.error = error

    async def run(self) -> None:
        """Run the tool to its end; the batch cancels this only when it ends itself."""
        try:
            # A limiter of its own: slots are the only limit. A shared one would be a second, and a tool whose thread
            # runs another tool inside its own job would wait for itself (ha-mcp#2369).
            await anyio.to_thread.run_sync(self._call, limiter=anyio.CapacityLimiter(1), abandon_on_cancel=True)
        except Exception as error:  # no thread could be started: the caller's affair, and not the whole batch's
            self.error = error
        finally:
            self.ended.set()
            self._job.leave(None)
