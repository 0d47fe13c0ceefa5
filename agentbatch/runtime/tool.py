"""Runs one tool, whatever its kind: a coroutine function is awaited, anything else goes to a worker thread."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread


def is_async(tool: Callable[..., Any]) -> bool:
    """Tell whether calling `tool` gives a coroutine, through partials and callable objects."""
    while isinstance(tool, functools.partial):
        tool = tool.func
    return inspect.iscoroutinefunction(tool) or inspect.iscoroutinefunction(type(tool).__call__)


async def run_tool(tool: Callable[..., Any], args: tuple[Any, ...], limiter: anyio.CapacityLimiter) -> Any:
    """Return what `tool(*args)` returns; a thread is waited for even when cancelled, since it cannot be stopped."""
    if is_async(tool):
        return await tool(*args)
    # boxed: trio refuses a thread that returns a coroutine, as decorated functions and lambdas may
    [result] = await anyio.to_thread.run_sync(lambda: [tool(*args)], limiter=limiter)
    return await result if inspect.isawaitable(result) else result
