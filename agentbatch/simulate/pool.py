"""Many simulations of one workload, over the machine's cores.

Processes are spawned, never forked, and get the workload once. Ctrl-C ends them at once; one that dies by itself is an
error that says so. One simulation, or one job, runs in this process.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import TracebackType
from typing import Self

from agentbatch.errors import AgentBatchError, StartUpError, UsageError
from agentbatch.events import Event, TrajectoryEnded
from agentbatch.simulate.options import SimulateOptions
from agentbatch.simulate.runner import SimulationResult, check, simulate
from agentbatch.trace.workload import TraceTrajectory

TICK_S = 0.25
"""How often `advanced` is called where nothing ends."""

Done = Callable[[int, SimulationResult, float], None]
"""Told of each simulation that ended: its place in the list, its result, the wall seconds it took."""
Advanced = Callable[[int], None]
"""Told how many more trajectories have ended, 0 at times."""


def available_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def simulate_all(
    workload: Sequence[TraceTrajectory],
    options: Sequence[SimulateOptions],
    done: Done,
    *,
    jobs: int,
    advanced: Advanced = lambda ended: None,
) -> None:
    """Simulate `workload` under each of `options`; results come in the order in which they end.

    Args:
        workload: as for `simulate`.
        options: one simulation each.
        done, advanced: called in this thread.
        jobs: processes to use at most, >= 1.

    Raises:
        UsageError: a simulation that cannot be, before any runs.
        StartUpError: a process died.
    """
    if jobs < 1:
        raise UsageError(f"jobs must be a whole number of at least 1, not {jobs}")
    for one in options:
        check(workload, one)
    if min(jobs, len(options)) <= 1:
        _here(workload, options, done, advanced)
        return
    with ExitStack() as stack:
        helpers = [stack.enter_context(Helper()) for _ in range(min(jobs, len(options)))]
        for helper in helpers:  # all have been started by now, so that they load side by side
            helper.send(workload)
        _share_out(helpers, options, len(workload), done, advanced)


def _here(
    workload: Sequence[TraceTrajectory], options: Sequence[SimulateOptions], done: Done, advanced: Advanced
) -> None:
    def listen(event: Event) -> None:
        if isinstance(event, TrajectoryEnded):
            advanced(1)

    for place, one in enumerate(options):
        began_s = time.perf_counter()
        result = simulate(workload, one, on_event=listen)
        done(place, result, time.perf_counter() - began_s)


def _share_out(
    helpers: Sequence[Helper], options: Sequence[SimulateOptions], trajectories: int, done: Done, advanced: Advanced
) -> None:
    """Keep every helper busy until all is done."""
    left = deque(enumerate(options))
    idle = list(helpers)
    busy: dict[Connection, tuple[Helper, int]] = {}
    while left or busy:
        while idle and left:
            helper = idle.pop()
            place, one = left.popleft()
            helper.send(one)
            busy[helper.connection] = helper, place
        for ready in wait(list(busy), TICK_S):
            helper, place = busy.pop(ready)  # type: ignore[call-overload]  # only connections are waited for
            result, wall_s = helper.receive()
            idle.append(helper)
            advanced(trajectories)
            done(place, result, wall_s)
        advanced(0)


class Helper:
    """One process that simulates what it is sent; a context manager that ends it, at once where it is busy."""

    def __init__(self) -> None:
        self.connection, self._theirs = multiprocessing.get_context("spawn").Pipe()
        self._process: SpawnProcess = multiprocessing.get_context("spawn").Process(
            target=serve, args=(self._theirs,), daemon=True
        )
        self._busy = False

    def send(self, what: Sequence[TraceTrajectory] | SimulateOptions) -> None:
        """Send the workload first, then one simulation after the other, each once the last has been received.

        Raises:
            StartUpError: the process died.
        """
        self._busy = True
        try:
            self.connection.send(what)
        except OSError as error:
            raise self._died() from error

    def receive(self) -> tuple[SimulationResult, float]:
        """Return the result of the simulation sent last and the wall seconds it took.

        Raises:
            StartUpError: the process died.
            AgentBatchError: whatever the simulation raised.
        """
        try:
            outcome, wall_s = self.connection.recv()
        except (EOFError, OSError) as error:
            raise self._died() from error
        self._busy = False
        if isinstance(outcome, AgentBatchError):
            raise outcome
        return outcome, wall_s

    def _died(self) -> StartUpError:
        self._process.join(1.0)
        code = self._process.exitcode
        how = f"by signal {-code}" if code is not None and code < 0 else f"with exit code {code}"
        return StartUpError(
            f"a simulation process ended {how} before it had a result; if memory ran out, use fewer with --jobs"
        )

    def __enter__(self) -> Self:
        with _interrupts_ignored():
            self._process.start()
        self._theirs.close()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.connection.close()  # an idle one ends by itself
        if self._busy:
            self._process.kill()
        self._process.join()
        self._process.close()


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Start a process that Ctrl-C in a terminal leaves to its parent, from its first moment on."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def serve(connection: Connection) -> None:
    """Simulate what comes in until the other end is closed; runs in a process of its own."""
    with suppress(ValueError):  # started from a thread
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(EOFError, OSError):
        workload = connection.recv()
        gc.freeze()  # it lives as long as this process: a tenth of the time went into looking at it again and again
        while True:
            options = connection.recv()
            began_s = time.perf_counter()
            try:
                outcome: SimulationResult | AgentBatchError = simulate(workload, options)
            except AgentBatchError as error:
                outcome = error
            connection.send((outcome, time.perf_counter() - began_s))
