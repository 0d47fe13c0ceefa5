"""Ctrl-C while a batch runs: the first admits no more and lets the rest finish, the second stops as Ctrl-C always does.

Only where nobody else has taken SIGINT: the handler found must be Python's own, or that of the event loop's runner.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import anyio.lowlevel


class DrainFirst:
    """A SIGINT handler: drains at the first signal, and hands later ones to the handler it found.

    Args:
        drain: called at the first signal, within the handler. stop: at later ones.
        before: the handler found, which stops the program.
    """

    def __init__(self, drain: Callable[[], None], stop: Callable[[], None], before: Any) -> None:
        self._drain = drain
        self._stop = stop
        self.before = before
        self.signals = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle one SIGINT."""
        self.signals += 1
        if self.signals == 1:
            self._drain()
            if isinstance(self.before, DrainFirst):  # a batch within a batch: both drain
                self.before(number, frame)
            return
        before: Any = self
        while isinstance(before, DrainFirst):
            before._stop()
            before = before.before
        before(number, frame)

    def __repr__(self) -> str:
        return f"<DrainFirst signals={self.signals} before={self.before!r}>"


@contextmanager
def drains_on_interrupt(drain: Callable[[], None], stop: Callable[[], None] = lambda: None) -> Iterator[bool]:
    """Install a `DrainFirst` for a block; yields whether it could. Only the main thread can.

    Args:
        drain, stop: what a signal handler may call at any time; see `soon`.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not _stops_the_program(before):
        yield False
        return
    handler = DrainFirst(drain, stop, before)
    signal.signal(signal.SIGINT, handler)
    try:
        yield True
    finally:
        if signal.getsignal(signal.SIGINT) is handler:  # else somebody else took it meanwhile
            signal.signal(signal.SIGINT, before)


def _stops_the_program(handler: Any) -> bool:
    """Tell whether `handler` is Python's own, asyncio's, trio's or ours; none of them is part of any public API."""
    if handler is signal.default_int_handler or isinstance(handler, DrainFirst):
        return True
    function = getattr(handler, "func", handler)  # asyncio.Runner's is a partial
    return str(getattr(function, "__module__", "")).partition(".")[0] in ("asyncio", "trio")


def soon(drain: Callable[[], None]) -> Callable[[], None]:
    """Return a function that a signal handler may call, and that has `drain` called between two steps of the loop."""
    token: Any = anyio.lowlevel.current_token()
    wrapped = getattr(token, "native_token", token)
    if hasattr(wrapped, "run_sync_soon"):  # trio
        return lambda: wrapped.run_sync_soon(drain)
    return lambda: wrapped.call_soon_threadsafe(drain)
