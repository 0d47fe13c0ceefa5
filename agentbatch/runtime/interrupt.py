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
        self.ended = False
        """Its batch has ended; it may be found all the same, by another batch that began later and ends later."""

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle one SIGINT."""
        before = past_ended(self.before)
        self.signals += 1
        if self.signals == 1 and not self.ended:
            self._drain()
            if isinstance(before, DrainFirst):  # a batch within a batch, or beside it: both drain
                before(number, frame)
            return
        if self.ended:  # then it is no more than the way to the handler that it found
            before(number, frame)
            return
        handler: Any = self
        while isinstance(handler, DrainFirst):
            if not handler.ended:
                handler._stop()
            handler = handler.before
        handler(number, frame)

    def __repr__(self) -> str:
        return f"<DrainFirst signals={self.signals} before={self.before!r}>"


def past_ended(handler: Any) -> Any:
    """Return `handler`, or what the first one that still counts found, where its batch has ended."""
    while isinstance(handler, DrainFirst) and handler.ended:
        handler = handler.before
    return handler


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
        handler.ended = True
        found = signal.getsignal(signal.SIGINT)
        if found is handler:  # else somebody else took it meanwhile
            signal.signal(signal.SIGINT, past_ended(found))


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
