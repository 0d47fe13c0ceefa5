"""A virtual clock for asyncio and trio: when nothing can run, time jumps to the next timer.

An hour of `anyio.sleep` passes in a millisecond. `anyio.current_time`, time-outs and the loop's own timers
follow; `time.monotonic` and `time.sleep` do not. Time starts at 0.0 s.

    def test_backoff() -> None:
        assert virtual_clock.run(main, backend="trio") == 42

Lives here: when time may move. It moves once no callback is ready and a poll of real I/O finds nothing:
- I/O is polled for `io_grace_s` real seconds. 0 does for two ends in one process; a socket to elsewhere needs
  more.
- A thread (`anyio.to_thread`, `loop.run_in_executor`) takes no virtual time: the clock stands still for
  `thread_grace_s` real seconds, by default until the thread ends. A thread that itself waits for a later
  virtual time (`anyio.from_thread.run(anyio.sleep, 1)`, a sync twin, a stuck tool that a time-out shall end)
  needs a finite grace, such as 0.05.
- If nothing is ready, no timer is set and no I/O or thread is pending, nothing can go on: `ClockDeadlock`.

Not supported: subprocesses and threads started by other means (time runs past them), and a loop fed from
another thread (a blocking portal: idle looks like a deadlock). A socket nobody will write to and a timer that
sets itself again for ever hide a deadlock. trio runs tasks that are ready at the same instant in random
order, and after a jump its clock may be a rounding error late; asyncio's order and times are exact.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import Executor
from contextvars import Context
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Literal, TypeVar, TypeVarTuple

import anyio.lowlevel

from agentbatch.errors import AgentBatchError, UsageError

if TYPE_CHECKING:
    import trio

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

_PLUMBING = frozenset({"anyio", "asyncio", "trio"})


class ClockDeadlock(AgentBatchError, RuntimeError):
    """Every task waits for something that cannot happen: names them and the line each waits at."""


def run(
    main: Callable[[*Ts], Awaitable[R]],
    *args: *Ts,
    backend: Literal["asyncio", "trio"] = "asyncio",
    io_grace_s: float = 0.0,
    thread_grace_s: float = math.inf,
) -> R:
    """Run an async function on a virtual clock and return its result; to be called where no event loop runs.

    Args:
        main: the async function; `args` go to it.
        backend: "asyncio", or "trio" where it is installed.
        io_grace_s: real seconds to wait for I/O before time jumps, finite and >= 0.
        thread_grace_s: real seconds to wait for a working thread before time jumps all the same, >= 0.

    Raises:
        ClockDeadlock: nothing can go on; `main` is cancelled first, so that its clean-up has run.
        UsageError: an unknown backend or a grace out of range.
    """
    if backend == "asyncio":
        loop = partial(VirtualClockLoop, io_grace_s=io_grace_s, thread_grace_s=thread_grace_s)
        return anyio.run(main, *args, backend="asyncio", backend_options={"loop_factory": loop})
    if backend != "trio":
        raise UsageError(f"unknown backend {backend!r}: choose 'asyncio' or 'trio'")
    _check_graces(io_grace_s, thread_grace_s)
    return _run_on_trio(main, args, io_grace_s, thread_grace_s)


class VirtualClockLoop(asyncio.SelectorEventLoop):
    """An asyncio event loop whose time jumps to the next timer when nothing is ready.

    Fits wherever a loop factory does: `asyncio.Runner(loop_factory=VirtualClockLoop)`, or an `anyio_backend`
    fixture that returns `("asyncio", {"loop_factory": VirtualClockLoop})`.

    Args:
        io_grace_s: see `run`.
        thread_grace_s: see `run`.

    Raises:
        UsageError: a grace out of range.
    """

    # asyncio's heap of timers. Its head is the next time; now + (head - now) may miss it by a rounding error.
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self, *, io_grace_s: float = 0.0, thread_grace_s: float = math.inf) -> None:
        self._now = 0.0
        self._io_grace_s = io_grace_s
        self._thread_grace_s = thread_grace_s
        self._jobs: set[asyncio.Future[Any]] = set()
        super().__init__(_JumpingSelector(self))
        try:
            _check_graces(io_grace_s, thread_grace_s)
        except UsageError:
            self.close()
            raise

    def time(self) -> float:
        """Return the virtual time, seconds since the loop was made."""
        return self._now

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Arrange for `callback` to be called at virtual time `when`; never, if that is infinite."""
        if when == math.inf:  # anyio.sleep_forever: no time to jump to
            return asyncio.TimerHandle(when, callback, args, self, context)
        return super().call_at(when, callback, *args, context=context)

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], R], *args: *Ts
    ) -> asyncio.Future[R]:
        """Run `func` in a thread or process; the clock waits for it while its future is pending."""
        future = super().run_in_executor(executor, func, *args)
        self._jobs.add(future)
        future.add_done_callback(self._jobs.discard)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Join the default executor's threads; `timeout` is ignored, since it would be virtual."""
        joining = self.create_future()  # asyncio joins them on a thread that run_in_executor does not see
        self._jobs.add(joining)
        try:
            await super().shutdown_default_executor()
        finally:
            self._jobs.discard(joining)

    def _patience_s(self, sockets: int) -> float:
        """Return how long to wait, real seconds, before time may jump; infinite if only others can go on."""
        threads = len(self._jobs) + _anyio_threads(self)
        if not self._scheduled and (threads or sockets):
            return math.inf
        return self._thread_grace_s if threads else self._io_grace_s

    def _jump(self) -> None:
        if not self._scheduled:
            tasks = sorted(asyncio.all_tasks(self), key=asyncio.Task.get_name)
            raise _deadlock(self._now, (_where(task.get_name(), task.get_coro()) for task in tasks))
        self._now = self._scheduled[0].when()


class _JumpingSelector(selectors.DefaultSelector):
    """Asks the loop what to do where another selector would block."""

    def __init__(self, loop: VirtualClockLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            return super().select(timeout)
        patience_s = self._loop._patience_s(sockets=len(self.get_map()) - 1)  # one is the loop's own pipe
        if patience_s == math.inf:
            return super().select(None)
        events = super().select(patience_s)
        if not events:
            self._loop._jump()
        return events


def _anyio_threads(loop: asyncio.AbstractEventLoop) -> int:
    """Return the number of anyio's worker threads that are at work for `loop`.

    anyio publishes no such number (trio does), so this reads its private pool; a test notices when that changes.
    """
    from anyio._backends import _asyncio as backend  # noqa: PLC0415 - not needed where trio runs

    variables = anyio.lowlevel._run_vars.get(loop, {})
    pool, idle = backend._threadpool_workers, backend._threadpool_idle_workers
    return len(variables.get(pool, ())) - len(variables.get(idle, ()))


def _run_on_trio(
    main: Callable[[*Ts], Awaitable[R]], args: tuple[*Ts], io_grace_s: float, thread_grace_s: float
) -> R:
    import trio  # noqa: PLC0415 - optional
    import trio.testing  # noqa: PLC0415

    clock = trio.testing.MockClock(autojump_threshold=io_grace_s)
    scope = trio.CancelScope()

    class Watch(trio.abc.Instrument):
        """Holds the clock while threads work; cancels `main` in a deadlock, where MockClock would spin."""

        main: trio.lowlevel.Task | None = None
        idle_passes = 0
        deadlock: ClockDeadlock | None = None

        def after_task_step(self, task: trio.lowlevel.Task) -> None:
            self.idle_passes = 0
            grace_s = thread_grace_s if trio.testing.active_thread_count() else io_grace_s
            if clock.autojump_threshold != grace_s:
                clock.autojump_threshold = grace_s

        def before_io_wait(self, timeout: float) -> None:
            now = trio.lowlevel.current_statistics()
            kinds = ("tasks_waiting", "tasks_waiting_read", "tasks_waiting_write")  # kqueue; epoll, Windows
            waiting = sum(getattr(now.io_statistics, kind, 0) for kind in kinds)
            if (
                self.main is None
                or self.deadlock is not None
                or now.tasks_runnable
                or now.run_sync_soon_queue_size
                or now.seconds_to_next_deadline < math.inf
                or waiting > 1  # one is trio's own wake-up task
                or trio.testing.active_thread_count()
            ):
                return
            self.idle_passes += 1
            if self.idle_passes > 1:  # the first may be the one that wait_all_tasks_blocked waits for
                self.deadlock = _deadlock(trio.current_time(), _trio_tasks(self.main))
                trio.lowlevel.current_trio_token().run_sync_soon(scope.cancel)

    watch = Watch()

    @wraps(main)  # names the task
    async def watched() -> R:
        watch.main = trio.lowlevel.current_task()
        try:
            with scope:
                result = await main(*args)
        except Exception as error:
            if watch.deadlock is not None:
                raise watch.deadlock from error
            raise
        finally:
            watch.main = None
        if watch.deadlock is not None:
            raise watch.deadlock
        return result

    return anyio.run(watched, backend="trio", backend_options={"clock": clock, "instruments": [watch]})


def _trio_tasks(task: trio.lowlevel.Task) -> Iterator[str]:
    yield _where(task.name, task.coro)
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield from _trio_tasks(child)


def _where(name: str, awaited: Any) -> str:
    """Say which task waits and at which line of the user's code, the innermost that is not event-loop plumbing."""
    place = ""
    while awaited is not None:  # a coroutine or generator, then whatever it awaits
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] not in _PLUMBING:
            place = f" ({frame.f_code.co_filename}:{frame.f_lineno})"
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return name + place


def _deadlock(now_s: float, places: Iterable[str], shown: int = 8) -> ClockDeadlock:
    waiting = list(places)
    more = f" and {len(waiting) - shown} more" if len(waiting) > shown else ""
    return ClockDeadlock(
        f"at {now_s:g} s nothing is ready, no timer is set and no I/O or thread is pending, so nobody can "
        f"wake {', '.join(waiting[:shown])}{more}"
    )


def _check_graces(io_grace_s: float, thread_grace_s: float) -> None:
    if not 0 <= io_grace_s < math.inf:
        raise UsageError(f"io_grace_s must be finite and 0 or more real seconds, not {io_grace_s!r}")
    if not thread_grace_s >= 0:
        raise UsageError(f"thread_grace_s must be 0 or more real seconds, not {thread_grace_s!r}")
