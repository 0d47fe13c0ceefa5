"""Run emulated workers as a process of their own, until a signal or until the parent is gone."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable

import structlog

from agentbatch.emulator.server import Emulator, serve_settings
from agentbatch.emulator.settings import Settings

_FILES = 65_536


def run_until_stopped(
    settings: Settings, ready: Callable[[Emulator], None], *, lifeline: int | None = None
) -> None:
    """Serve until SIGINT, SIGTERM or the end of the lifeline.

    Args:
        settings: what to serve.
        ready: called once every worker accepts connections.
        lifeline: a file descriptor whose end of file means that the parent is gone.

    Raises:
        StartUpError: a port is in use.
        UsageError: the script cannot be read.
    """
    if not structlog.is_configured():  # stdout is for the URLs
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    _raise_file_limit()
    # Caches hold hundreds of thousands of small objects that never form cycles: full collections only
    # stall.
    gc.set_threshold(100_000, 50, 100)
    with asyncio.Runner(loop_factory=_fast_loop()) as runner:
        runner.run(_serve(settings, ready, lifeline))


async def _serve(settings: Settings, ready: Callable[[Emulator], None], lifeline: int | None) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C arrives as KeyboardInterrupt
            loop.add_signal_handler(number, stop.set)
    if lifeline is not None:
        threading.Thread(target=_watch, args=(lifeline, loop, stop), daemon=True).start()
    async with serve_settings(settings) as emulator:
        ready(emulator)
        await stop.wait()


def _watch(lifeline: int, loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    with contextlib.suppress(OSError):
        while os.read(lifeline, 4096):
            pass
    with contextlib.suppress(RuntimeError):  # the loop has closed already
        loop.call_soon_threadsafe(stop.set)


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - optional
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _raise_file_limit() -> None:
    """Allow this process as many connections as the system lets it have."""
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
