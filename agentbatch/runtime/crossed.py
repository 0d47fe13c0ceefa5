"""What is at work on the loop for a thread that waits for it; see `crossing.py`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from threading import Lock
from typing import Any

import anyio

from agentbatch.errors import BatchClosed


class Withdrawn(Exception):
    """The work that a thread waited for was cancelled."""


def batch_gone() -> BatchClosed:
    """Build the error of a thread that outlived its batch."""
    return BatchClosed(
        "the batch has ended while this thread still ran: wait for your threads (`pool.shutdown()`, `thread.join()`) "
        "inside the batch's `with` block"
    )


class Once:
    """An event that comes once: cheap, and whole wherever KeyboardInterrupt strikes a thread that waits for it."""

    __slots__ = ("_lock", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._lock = Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Wake whoever waits; once only."""
        self.is_set = True  # first: a waiter may be interrupted while it holds the lock, and wait again
        self._lock.release()

    def wait(self, within_s: float) -> bool:
        """Block until it is set, but not for longer; tells whether it is."""
        if not self.is_set and self._lock.acquire(timeout=within_s):
            self._lock.release()
        return self.is_set


class Crossed:
    """A coroutine function at work on the loop for a thread that waits for it."""

    def __init__(self, function: Callable[..., Awaitable[Any]], args: tuple[Any, ...], among: set[Crossed]) -> None:
        self.name = getattr(function, "__qualname__", repr(function))
        self._function = function
        self._args = args
        self._among = among
        self._scope: anyio.CancelScope | None = None
        self._cancel_asked = False
        self.ended = Once()
        self.value: Any = None
        self.error: BaseException | None = None
        self.cancelled = False

    def refuse(self) -> None:
        """Do not begin: the batch has closed since the thread looked."""
        self._end(batch_gone())

    async def work(self) -> None:
        """Run to the end, which wakes the thread."""
        error: BaseException | None = None
        self._among.add(self)
        self._scope = scope = anyio.CancelScope()
        if self._cancel_asked:
            scope.cancel()
        try:
            with scope:
                self.value = await self._function(*self._args)
            self.cancelled = scope.cancelled_caught
        except anyio.get_cancelled_exc_class():
            self.cancelled = True
            raise
        except BaseException as raised:  # the waiting thread's, SystemExit too: the loop goes on
            error = raised
        finally:
            self._end(error)

    def _end(self, error: BaseException | None) -> None:
        self.error = error
        self._among.discard(self)
        self.ended.set()

    def cancel(self) -> None:
        """Cancel the work, on the loop thread."""
        self._cancel_asked = True
        if self._scope is not None:
            self._scope.cancel()
