"""From other threads to the loop thread of a batch, on which all policy state lives.

Lives here: the ways across. `post` does not wait, `call` waits for a plain function, `run` for a coroutine function.
What one thread sends arrives in the order it was sent, and runs under that thread's context variables.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

import anyio

from agentbatch.errors import BatchClosed, TrajectoryCancelled, WrongThread
from agentbatch.runtime.background import Background
from agentbatch.runtime.crossed import Crossed, Once, Withdrawn, batch_gone

if TYPE_CHECKING:
    from agentbatch.runtime.job import EnvironmentJob
    from agentbatch.runtime.turn import Turn

R = TypeVar("R")

LOOK_AGAIN_S = 2.0
"""How often a waiting thread sees whether the loop it waits for is still there, wall seconds."""


_open: WeakSet[Crossing] = WeakSet()


def _after_fork() -> None:
    for crossing in _open:  # the loop's thread stayed behind: whoever waited for it would wait for ever
        crossing.closed = crossing.forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


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
        self.forked = False
        self.all: set[Crossed] = set()
        self.blocks: set[anyio.Event] = set()
        """What `SyncAgentBatch.trajectory` blocks wait for; set when the batch closes before they end."""
        self.turns: set[Turn] = set()
        self.jobs: set[EnvironmentJob] = set()
        """Turns and jobs that threads have under way."""

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
        _open.add(self)

    def begin(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """Start a coroutine function beside the batch, on the loop thread, also from what a thread sent there."""
        self._arrive(Crossed(function, args, self.all), copy_context())

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
                    if self.closed:  # since it arrived
                        work.refuse()
                        continue
                    context.run(partial(self.background.start_soon, work.work, name=work.name))
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
            raise self._gone()

    def _gone(self) -> BatchClosed:
        if self.forked:
            return BatchClosed(
                "this process is a fork of the one that runs the batch: use client, environment and act in that one, "
                "and start processes with run_process or multiprocessing's 'spawn'"
            )
        return batch_gone()

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
        ended = Once()
        values: list[R] = []
        errors: list[BaseException] = []

        def work() -> None:
            try:
                values.append(function(*args))
            except BaseException as error:
                errors.append(error)
            finally:
                ended.set()

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

    def wait(self, ended: Once) -> None:
        """Block until `ended` is set.

        Raises:
            BatchClosed: the batch ended, and its loop perhaps with it.
        """
        while not ended.wait(LOOK_AGAIN_S):
            if self.closed:
                raise self._gone()

    def close(self) -> None:
        """Let no thread across any more, and none wait for what will not come; on the loop thread."""
        self.closed = True
        for block in self.blocks:
            block.set()

    def abandon(self) -> None:
        """End the turns and jobs of threads that outlive the batch: nobody else will."""
        error = TrajectoryCancelled("the batch ended while its thread still ran")
        for turn in tuple(self.turns):
            turn.finish(error)
        while self.jobs:
            self.jobs.pop().leave(error)
