"""`SyncAgentBatch`: an `AgentBatch` on an event loop thread of its own, for programs that have no event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

import anyio
from anyio.from_thread import start_blocking_portal

from agentbatch.errors import BatchClosed, TrajectoryCancelled
from agentbatch.events import Event
from agentbatch.runtime import current
from agentbatch.runtime.batch import AgentBatch
from agentbatch.runtime.clients import UnlabelledSyncClient
from agentbatch.runtime.crossed import Crossed, Once, Withdrawn, batch_gone
from agentbatch.runtime.crossing import Crossing
from agentbatch.runtime.interrupt import drains_on_interrupt
from agentbatch.runtime.options import BatchOptions
from agentbatch.runtime.results import Result
from agentbatch.runtime.statistics import BatchStatistics
from agentbatch.runtime.sync_results import results_as_completed
from agentbatch.runtime.sync_trajectory import SyncTrajectory

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


def _same_arguments(
    source: Callable[Concatenate[Any, P], None],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """Give a constructor the signature of `source`, for type checkers and for `help()`."""
    return wraps(source)


class SyncAgentBatch:
    """A batch of synchronous agent trajectories: `with SyncAgentBatch(cs=50, ce=3, base_url=…) as batch:`.

    Takes what `AgentBatch` takes. Limits, queues and account are those of an AgentBatch on a thread of its own; every
    method may be called from any thread. Leave the `with` block only when your own threads are done with the batch.
    """

    @_same_arguments(AgentBatch.__init__)
    def __init__(self, *args: Any, **options: Any) -> None:
        self._batch = AgentBatch(*args, **options)
        self._stack = ExitStack()
        self._entered = False

    @property
    def options(self) -> BatchOptions:
        """What the batch was asked for."""
        return self._batch.options

    def __enter__(self) -> SyncAgentBatch:
        with ExitStack() as stack:
            interrupts = stack.enter_context(ExitStack())  # closed last: Ctrl-C must not break off the end of the batch
            portal = stack.enter_context(start_blocking_portal("asyncio"))
            stack.enter_context(portal.wrap_async_context_manager(self._batch))
            token = current.batch.set(self._batch)
            stack.callback(current.batch.reset, token)
            if self._batch.drain_on_interrupt:
                post = self._batch.crossing.post  # writes to a pipe, takes no lock: safe in a signal handler
                interrupts.enter_context(
                    drains_on_interrupt(
                        partial(post, self._batch.interrupted), partial(post, self._batch.stop_threads)
                    )
                )
            self._stack = stack.pop_all()
        self._entered = True
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._stack.__exit__(exc_type, exc, tb)

    @property
    def _crossing(self) -> Crossing:
        if not self._entered:
            raise BatchClosed("the batch is not running: use it inside `with SyncAgentBatch(…) as batch:`")
        return self._batch.crossing

    def map(
        self, solve: Callable[[SyncTrajectory, T], R], tasks: Iterable[T], *, key: Callable[[T], object] | None = None
    ) -> list[Result[R]]:
        """Run `solve(trajectory, task)` for every task, each in a thread of its own, CS at once; see `AgentBatch.map`.

        The first Ctrl-C drains, the second cancels the run and raises KeyboardInterrupt; the record is complete.

        Raises:
            UsageError: `solve` is a coroutine function, or two tasks have the same key; nothing has run then.
            BatchClosed: outside the batch's `with`.
            WrongThread: called on the batch's own event loop, as from an event hook.
        """
        try:
            # read here: what yields the tasks may take its time, or use what belongs to this thread
            return self._crossing.run(partial(self._batch.map_sync, solve, list(tasks), key=key))
        except Withdrawn:
            raise batch_gone() from None

    def as_completed(
        self, solve: Callable[[SyncTrajectory, T], R], tasks: Iterable[T], *, key: Callable[[T], object] | None = None
    ) -> AbstractContextManager[Iterator[Result[R]]]:
        """Run tasks as `map` does; `with … as results: for result in results:` gives each as it ends.

        A slow reader holds nothing up. Leaving the block early cancels the trajectories that have not ended.

        Raises:
            UsageError, BatchClosed, WrongThread: as `map`, on entry.
        """
        self._crossing.check_thread()
        return results_as_completed(self._batch, solve, list(tasks), key)

    def trajectory(self, key: object) -> ThreadTrajectory:
        """Run a `with` block in the calling thread as one trajectory; what the block raises passes through.

        For harnesses that bring their own threads, each of which waits here for its admission slot.

        Raises:
            UsageError: on entry, `key` belongs to a trajectory that still runs.
            SlotConflict: on entry, inside another trajectory of this batch.
            TrajectoryCancelled: `SyncTrajectory.cancel` ended the block.
            BatchClosed: outside the batch's `with`.
        """
        return ThreadTrajectory(self._batch, self._crossing, key)

    @contextmanager
    def listen(self, hook: Callable[[Event], None]) -> Iterator[None]:
        """Call `hook` with every event for as long as the block runs, on the batch's own thread; see `AgentBatch`."""
        hub = self._batch.hub
        self._crossing.call_anywhere(hub.add, hook)
        try:
            yield
        finally:
            self._crossing.call_anywhere(hub.remove, hook)

    def drain(self) -> None:
        """Admit no more trajectories, and let those that run finish; see `AgentBatch.drain`.

        Raises:
            BatchClosed: outside the batch's `with`.
        """
        self._crossing.call_anywhere(self._batch.drain)

    def resize(self, *, cs: int | None = None, ce: int | Mapping[str, int] | None = None) -> None:
        """Change limits while the batch runs; see `AgentBatch.resize`.

        Raises:
            UsageError, StartUpError, BatchClosed: as there.
        """
        self._crossing.call_anywhere(partial(self._batch.resize, cs=cs, ce=ce))

    def plain_client(self) -> UnlabelledSyncClient:
        """Return an unlabelled `openai.OpenAI` around the threads' pool, for calls that belong to no trajectory.

        Raises:
            UsageError: the batch has no base_url. BatchClosed: outside the batch's `with`.
        """
        self._crossing.check_thread()
        return self._batch.build_plain_sync_client()

    def statistics(self) -> BatchStatistics:
        """Return what the batch does right now."""
        return self._crossing.call_anywhere(self._batch.statistics)

    def __repr__(self) -> str:
        return f"<Sync{repr(self._batch)[1:]}"


class ThreadTrajectory:
    """The `with` block of `SyncAgentBatch.trajectory`; a task on the loop holds its admission slot meanwhile."""

    def __init__(self, batch: AgentBatch, crossing: Crossing, key: object) -> None:
        self._batch = batch
        self._crossing = crossing
        self._key = key
        self._entered = Once()
        self._left: anyio.Event | None = None
        self._left_by_thread = False
        self._error: Exception | None = None
        self._work: Crossed | None = None
        self._sync: SyncTrajectory | None = None
        self._token: Any = None

    def __enter__(self) -> SyncTrajectory:
        crossing = self._crossing
        self._work = work = crossing.start(self._hold)
        try:
            crossing.wait(self._entered)
        except BaseException:  # KeyboardInterrupt while it waits for admission
            crossing.post(self._leave, TrajectoryCancelled("its thread was interrupted"))
            crossing.post(work.cancel)
            raise
        if self._sync is None:
            with suppress(Withdrawn):
                crossing.outcome(work)
            raise batch_gone()
        self._token = current.trajectory.set(self._sync.trajectory)
        current.batch.set(self._batch)  # stays: a pool's thread may come back for work outside any trajectory
        return self._sync

    async def _hold(self) -> None:
        try:
            async with self._batch.trajectory(self._key) as trajectory:
                self._left = left = anyio.Event()
                self._crossing.blocks.add(left)
                self._sync = trajectory.sync
                self._entered.set()
                try:
                    await trajectory.sync.until(left)
                finally:
                    self._crossing.blocks.discard(left)
                if not self._left_by_thread:
                    raise TrajectoryCancelled("the batch ended while its thread still ran")
                if self._error is not None:
                    raise self._error
        finally:
            if self._sync is None:  # never admitted
                self._entered.set()

    def _leave(self, error: Exception | None) -> None:
        self._left_by_thread = True
        self._error = error
        if self._left is not None:
            self._left.set()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        with suppress(ValueError):  # a generator's block may be entered in one thread and left in another
            current.trajectory.reset(self._token)
        error = exc if exc is None or isinstance(exc, Exception) else TrajectoryCancelled(f"ended by {exc!r}")
        work = self._work
        if work is None:
            raise RuntimeError("unreachable: __enter__ comes first")
        self._crossing.post(self._leave, error)
        self._crossing.finish(work)
        if exc is not None:
            exc.__traceback__ = tb  # without the loop's frames: the block's own error, as it was
        elif work.error is not None:
            raise work.error

    def __repr__(self) -> str:
        return f"<ThreadTrajectory {self._key!r} of {self._batch!r}>"
