"""One trajectory as a thread sees it: client, environment jobs and tools that block instead of being awaited.

Nothing is decided here: jobs, turns and tickets are those of the async side, on the loop thread.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial, wraps
from inspect import isawaitable
from threading import Event
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import anyio

from agentbatch.errors import BatchClosed, TrajectoryCancelled, TrajectoryTimeout
from agentbatch.runtime import current
from agentbatch.runtime.crossed import Crossed, Withdrawn
from agentbatch.runtime.job import current_job, within_job
from agentbatch.runtime.results import Timing, Usage
from agentbatch.runtime.sync_environment import SyncEnvironment
from agentbatch.runtime.tool import is_async

if TYPE_CHECKING:
    from agentbatch.runtime.sync_client import SyncTrajectoryClient
    from agentbatch.runtime.trajectory import Trajectory

P = ParamSpec("P")
R = TypeVar("R")

MOMENT_S = 0.25
"""How long a thread may take to hear that it is to stop before it counts as an overrun, wall seconds."""


class Stop:
    """What a trajectory and its children share: whether their threads are to stop, and what these wait for."""

    def __init__(self) -> None:
        self.error: TrajectoryCancelled | TrajectoryTimeout | None = None
        self.set = Event()
        self.waits: set[Crossed] = set()


class SyncTrajectory:
    """A trajectory for plain functions in threads: handed to `map_sync`'s function, or `Trajectory.sync`.

    Any number of threads may use it, but never the event loop's own. It cannot stop a thread: once the trajectory is
    cancelled, the thread's wait for an environment slot ends, and its next use of client or environment raises
    `TrajectoryCancelled`; its result does not wait for the thread, the admission slot does.
    """

    def __init__(self, trajectory: Trajectory, parent: SyncTrajectory | None = None) -> None:
        self.trajectory = trajectory
        self.crossing = trajectory.batch.crossing
        self._stop: Stop = Stop() if parent is None else parent._stop
        self._client: SyncTrajectoryClient | None = None

    # -- what a harness uses ------------------------------------------------------------------------------------

    @property
    def key(self) -> str:
        """The task's key, unique in its batch."""
        return self.trajectory.key

    @property
    def label(self) -> str:
        """What every inference request of this trajectory carries (spec §3)."""
        return self.trajectory.label

    @property
    def client(self) -> SyncTrajectoryClient:
        """An `openai.OpenAI` whose requests carry this trajectory's label, are timed and counted.

        Raises:
            WrongThread: asked for on the event loop's thread; use `Trajectory.client` there.
            TrajectoryClosed, TrajectoryCancelled, BatchClosed: the trajectory or its batch has ended.
            UsageError: the batch has no server.
        """
        if self._client is None:
            self.check_open()
            self._client = self.trajectory.batch.build_sync_client(self)
        return self._client

    def environment(self, resource: str = "default", *, timeout_s: float | None = None) -> SyncEnvironment:
        """Open one environment job: `with traj.environment():` waits for a slot and holds it for the block.

        The queue, its order and the rules for nested blocks are those of `Trajectory.environment`.

        Args:
            resource: which of the batch's named limits the job falls under.
            timeout_s: seconds from the grant; default `environment_timeout_s`. A thread cannot be stopped: a block that
                takes longer keeps its slot to its end, then raises `EnvironmentTimeout`, and counts as an overrun.

        Raises:
            UsageError: the batch has no such resource, or the time-out is none.
        """
        return SyncEnvironment(self, resource, timeout_s)

    def act(
        self, tool: Callable[..., Any], *args: Any, resource: str = "default", timeout_s: float | None = None
    ) -> Any:
        """Run `tool(*args)` as an environment job of one operation and return what it returns. Never retried.

        A plain function runs in the calling thread, a coroutine function on the batch's event loop.

        Raises:
            EnvironmentTimeout: it took longer than `timeout_s` from the grant; see `environment`.
        """
        if is_async(tool):
            return self.run(partial(self.trajectory.act, tool, *args, resource=resource, timeout_s=timeout_s))
        with self.environment(resource, timeout_s=timeout_s):
            result = tool(*args)
            return self.run(_finish, result) if isawaitable(result) else result

    def run_process(
        self,
        command: str | Sequence[str],
        *,
        stdin: bytes = b"",
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        resource: str = "default",
        timeout_s: float | None = None,
        grace_s: float = 5.0,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command as an environment job, which unlike a thread can be stopped; see `Trajectory.run_process`.

        Raises:
            OSError, EnvironmentTimeout: as there.
            TrajectoryCancelled, TrajectoryTimeout: the trajectory ended meanwhile, and the command's group with it.
        """
        options: dict[str, Any] = {"stdin": stdin, "cwd": cwd, "env": env, "resource": resource}
        run = partial(self.trajectory.run_process, command, timeout_s=timeout_s, grace_s=grace_s, **options)
        done: subprocess.CompletedProcess[bytes] = self.run(run)
        return done

    def child(self, name: str) -> SyncTrajectory:
        """Return the child called `name`, for the same threads; see `Trajectory.child`."""

        async def child() -> SyncTrajectory:  # in a task, since it makes a cancel scope
            return self.trajectory.child(name).sync

        found: SyncTrajectory = self.run(child)
        return found

    def cancel(self, reason: str = "cancelled by the harness") -> None:
        """Cancel this trajectory alone; its result is `Failed` with a `TrajectoryCancelled` that gives `reason`."""
        cancel = self.trajectory.cancel
        if self.crossing.on_loop_thread:
            cancel(reason)
        else:
            with suppress(BatchClosed):  # it has ended with its batch
                self.crossing.call(cancel, reason)

    @property
    def is_open(self) -> bool:
        """Whether the trajectory is admitted and has not ended."""
        return self.trajectory.is_open

    @property
    def usage(self) -> Usage:
        """Tokens, turns and jobs so far."""
        return self.crossing.call_anywhere(lambda: self.trajectory.usage)

    def timing(self) -> Timing:
        """Where the time went, up to now."""
        return self.crossing.call_anywhere(self.trajectory.timing)

    def bind(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return `function` such that this trajectory is current in it, in whatever thread or pool runs it.

        Context variables do not reach threads that `threading.Thread`, `ThreadPoolExecutor` or `run_in_executor`
        start: `pool.submit(traj.bind(tool), …)`. The environment job around the call of `bind`, if any, is joined too.
        """
        job = current_job()
        trajectory = self.trajectory

        @wraps(function)
        def bound(*args: P.args, **kwargs: P.kwargs) -> R:
            token = current.trajectory.set(trajectory)
            current.batch.set(trajectory.batch)  # stays: a pool's thread may come back for work outside any trajectory
            try:
                with within_job(job):
                    return function(*args, **kwargs)
            finally:
                current.trajectory.reset(token)

        return bound

    def __repr__(self) -> str:
        return f"<Sync{repr(self.trajectory)[1:]}"

    # -- what the runtime uses, in the thread ---------------------------------------------------------------------

    def check_open(self) -> None:
        """Let pass while the trajectory runs, from threads other than the loop's.

        Raises:
            WrongThread, BatchClosed, TrajectoryCancelled, TrajectoryTimeout, TrajectoryClosed: it may not.
        """
        self.crossing.check_thread()
        error = self.told_to_stop()
        if error is not None:
            raise error
        self.trajectory.check_running()

    def told_to_stop(self) -> TrajectoryCancelled | TrajectoryTimeout | None:
        """Return a new error that says why the thread is to stop, or None."""
        error = self._stop.error
        return None if error is None else type(error)(*error.args)  # one object must not rise in several threads

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run a coroutine function on the loop; it ends with the trajectory.

        Raises:
            TrajectoryCancelled, TrajectoryTimeout, TrajectoryClosed, BatchClosed: the trajectory ended meanwhile.
            BaseException: what the function raised.
        """
        self.check_open()
        try:
            return self.crossing.run(self._unless_stopped, function, *args, among=self._stop.waits)
        except Withdrawn:
            self.check_open()
            raise TrajectoryCancelled("the wait was cancelled") from None

    def pause(self, seconds: float) -> None:
        """Wait before a retry, wall seconds.

        Raises:
            TrajectoryCancelled, TrajectoryTimeout, TrajectoryClosed, BatchClosed: the trajectory ended meanwhile.
        """
        self._stop.set.wait(seconds)
        self.check_open()

    # -- what the runtime uses, on the loop thread ----------------------------------------------------------------

    def stop(self, error: TrajectoryCancelled | TrajectoryTimeout | None = None) -> None:
        """End what the threads wait for, and tell them why to stop (None: the trajectory has simply ended)."""
        stop = self._stop
        stop.error = stop.error or error
        stop.set.set()
        for wait in tuple(stop.waits):
            wait.cancel()

    async def _unless_stopped(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run `function`, unless the thread was told to stop after it looked."""
        error = self.told_to_stop()
        if error is not None:
            raise error
        return await function(*args)

    async def until(self, ended: anyio.Event) -> None:
        """Wait for the end of a thread, which cannot be stopped: a cancellation is passed on and waits as well."""
        try:
            await ended.wait()
        except anyio.get_cancelled_exc_class():
            await self.wind_down(ended)
            with anyio.CancelScope(shield=True):
                await ended.wait()
            raise

    async def wind_down(self, ended: anyio.Event) -> bool:
        """Tell the threads to stop, those that read a stream too; False, and a notice, where one goes on anyway."""
        trajectory = self.trajectory
        self.stop(trajectory.ending.error())
        await trajectory.close_streams()  # wakes a thread that reads one
        with anyio.move_on_after(MOMENT_S, shield=True):
            await ended.wait()
        if not ended.is_set():
            trajectory.batch.hub.notice(
                "overrun",
                f"the thread of trajectory {trajectory.key!r} runs on after it was told to stop; its admission slot "
                "stays taken until it ends",
                label=trajectory.label,
            )
        return ended.is_set()


async def _finish(awaitable: Any) -> Any:
    return await awaitable
