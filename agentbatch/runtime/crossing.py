"""From other threads to the loop thread of a batch, on which all policy state lives.

Lives here: the ways across. `post` does not wait, `call` waits for a plain function, `run` for a coroutine function.
What one thread sends arrives in the order it was sent, and runs under that thread's context variables.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context, copy_context
from threading import Lock, get_ident
from typing import Any, TypeVar

import anyio

from agentbatch.errors import BatchClosed, WrongThread
from agentbatch.runtime.background import Background

R = TypeVar("R")

LOOK_AGAIN_S = 2.0
"""How often a waiting thread sees whether the loop it waits for is still there, wall seconds."""


def batch_gone() -> BatchClosed:
    """Build the error of a thread that outlived its batch."""
    return BatchClosed(
        "the batch has ended while this thread still ran: wait for your threads (`pool.shutdown()`, `thread.join()`) "
        "inside the batch's `with` block"
    )


class Crossed:
    """A coroutine function at work on the loop for a thread that waits for it."""

    def __init__(self, function: Callable[..., Awaitable[Any]], args: tuple[Any, ...], among: set[Crossed]) -> None:
        self._function = function
        self._args = args
        self._among = among
        self._scope: anyio.CancelScope | None = None
        self._cancel_asked = False
        self.ended = Lock()
        self.ended.acquire()
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
        self.ended.release()

    def cancel(self) -> None:
        """Cancel the work, on the loop thread."""
        self._cancel_asked = True
        if self._scope is not None:
            self._scope.cancel()


class Crossing:
    """The way to the loop thread of one batch.

    Args:
        background: where coroutine functions run; cancelled when the batch ends.
    """

    def __init__(self, background: Background) -> None:
        self.background = background
        self._thread = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._send: Callable[..., object]
        self._arrived: anyio.Event
        self._arrivals: deque[tuple[Crossed, Context]] = deque()
        self.closed = True
        self.all: set[Crossed] = set()
        self.blocks: set[anyio.Event] = set()
        """What `SyncAgentBatch.trajectory` blocks wait for; set when the batch closes before they end."""

    def open(self) -> None:
        """Bind to the running event loop."""
        self._thread = get_ident()
        try:
            self._loop = loop = asyncio.get_running_loop()
        except RuntimeError:
            import trio  # noqa: PLC0415 - it is the running loop's library

            token = trio.lowlevel.current_trio_token()
            self._send = lambda function, *args: token.run_sync_soon(copy_context().run, function, *args)
        else:
            self._send = loop.call_soon_threadsafe  # copies the context itself
        self._arrived = anyio.Event()
        self.background.start_soon(self._start_arrivals, name="calls from threads")
        self.closed = False

    def _arrive(self, work: Crossed, context: Context) -> None:
        if self.closed:
            work.refuse()
        else:
            self._arrivals.append((work, context))
            self._arrived.set()

    async def _start_arrivals(self) -> None:
        """Start what threads sent, in a task: outside of one anyio does not know which event loop it runs on."""
        try:
            while True:
                await self._arrived.wait()
                self._arrived = anyio.Event()
                while self._arrivals:
                    work, context = self._arrivals.popleft()
                    context.run(self.background.start_soon, work.work)
        finally:
            for work, _ in self._arrivals:
                work.refuse()

    # -- where am I -----------------------------------------------------------------------------------------------

    @property
    def on_loop_thread(self) -> bool:
        """Whether the caller runs on the batch's loop thread."""
        return get_ident() == self._thread

    def check_loop(self) -> None:
        """Let only the batch's own event loop pass; well below 1 us.

        Raises:
            WrongThread: called from another thread or another event loop.
        """
        if self._loop is None:
            if get_ident() == self._thread:
                return
        else:
            try:
                if asyncio.get_running_loop() is self._loop:
                    return
            except RuntimeError:  # no loop runs in this thread
                pass
        raise WrongThread(
            "an async part of a batch (map, trajectory, traj.client, environment, act) was used from another thread or "
            "event loop than the batch runs on: in a thread use traj.sync (client, environment, act) or map_sync; in "
            "another event loop open a batch of its own"
        )

    def check_thread(self) -> None:
        """Let only other threads pass.

        Raises:
            WrongThread: called on the loop thread, where waiting would stop everything.
            BatchClosed: the batch has ended.
        """
        if get_ident() == self._thread:
            raise WrongThread(
                "a synchronous part of a batch was used on its event loop's own thread, where waiting would stop every "
                "trajectory, this one for ever: there, use traj.client, `async with traj.environment()` and `await "
                "traj.act()`, or run the function in a thread (map_sync, anyio.to_thread.run_sync)"
            )
        if self.closed:
            raise batch_gone()

    # -- across ---------------------------------------------------------------------------------------------------

    def post(self, function: Callable[..., object], *args: Any) -> None:
        """Run `function(*args)` on the loop thread soon, without waiting; dropped once the loop is gone."""
        with suppress(RuntimeError):  # both libraries' word for a loop that has ended
            self._send(function, *args)

    def call(self, function: Callable[..., R], *args: Any) -> R:
        """Run `function(*args)` on the loop thread and return what it returns.

        Raises:
            WrongThread, BatchClosed: see `check_thread`.
            BaseException: what the function raised.
        """
        self.check_thread()
        ended = Lock()
        ended.acquire()
        values: list[R] = []
        errors: list[BaseException] = []

        def work() -> None:
            try:
                values.append(function(*args))
            except BaseException as error:
                errors.append(error)
            finally:
                ended.release()

        self.post(work)
        self.wait(ended)
        if errors:
            raise errors.pop()
        return values[0]

    def call_anywhere(self, function: Callable[..., R], *args: Any) -> R:
        """Like `call`, but directly on the loop thread and after the batch has ended."""
        if self.closed or self.on_loop_thread:
            return function(*args)
        return self.call(function, *args)

    def start(
        self, function: Callable[..., Awaitable[Any]], *args: Any, among: set[Crossed] | None = None
    ) -> Crossed:
        """Start a coroutine function on the loop; it is in `among` while it runs, whose owner may cancel it.

        Raises:
            WrongThread, BatchClosed: see `check_thread`.
        """
        self.check_thread()
        work = Crossed(function, args, self.all if among is None else among)
        self.post(self._arrive, work, copy_context())
        return work

    def run(
        self, function: Callable[..., Awaitable[R]], *args: Any, among: set[Crossed] | None = None
    ) -> R:
        """Run a coroutine function on the loop and return what it returns.

        Whatever interrupts the waiting thread (KeyboardInterrupt) cancels the work and goes on once that has ended.

        Raises:
            WrongThread, BatchClosed: see `check_thread`.
            Withdrawn: the work was cancelled from elsewhere.
            BaseException: what the function raised.
        """
        result: R = self.outcome(self.start(function, *args, among=among))
        return result

    def outcome(self, work: Crossed) -> Any:
        """Wait for `work` and return what it returned or raise what it raised, as `run` does."""
        self.finish(work)
        if work.error is not None:
            raise work.error
        if work.cancelled:
            raise Withdrawn
        return work.value

    def finish(self, work: Crossed) -> None:
        """Wait for `work`; an interruption of this thread cancels it and goes on once it has ended."""
        try:
            self.wait(work.ended)
        except BatchClosed:
            raise
        except BaseException:
            self.post(work.cancel)
            self.wait(work.ended)
            raise

    def wait(self, ended: Lock) -> None:
        """Block until `ended` is free.

        Raises:
            BatchClosed: the batch ended, and its loop perhaps with it.
        """
        while not ended.acquire(timeout=LOOK_AGAIN_S):
            if self.closed:
                raise batch_gone()

    def close(self) -> None:
        """Let no thread across any more, and none wait for what will not come; on the loop thread."""
        self.closed = True
        for block in self.blocks:
            block.set()


class Withdrawn(Exception):
    """The work that a thread waited for was cancelled."""
