"""`with traj.environment():` in a thread: the same job as on the async side, entered and left on the loop thread."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from agentbatch.errors import SlotConflict
from agentbatch.runtime.checks import check_seconds
from agentbatch.runtime.job import EnvironmentJob

if TYPE_CHECKING:
    from agentbatch.runtime.sync_trajectory import SyncTrajectory


class SyncEnvironment:
    """A `with` block that runs while its job holds an environment slot; see `EnvironmentJob`. Use each object once.

    Raises:
        SlotConflict: on entry, when the thread holds a slot of another resource of the same batch, or the object was
            used before.
        TrajectoryClosed, TrajectoryCancelled, BatchClosed: on entry, when the trajectory or its batch has ended, or
            does while the job waits.
        WrongThread: on entry, on the event loop's thread.
        EnvironmentTimeout: on exit, when the block held its slot for longer than its time-out.
    """

    __slots__ = ("_default_s", "_job", "_limit_s", "_sync", "_used")

    def __init__(self, sync: SyncTrajectory, resource: str, timeout_s: float | None) -> None:
        trajectory = sync.trajectory
        self._sync = sync
        self._job = EnvironmentJob(trajectory, trajectory.batch.gate(resource))
        self._limit_s = None if timeout_s is None else check_seconds("timeout_s", timeout_s)
        self._default_s = trajectory.batch.options.environment_timeout_s.get(resource)
        self._used = False

    def __enter__(self) -> EnvironmentJob:
        if self._used:
            raise SlotConflict("an environment() block was entered twice: call environment() anew for each block")
        self._used = True
        job = self._job
        try:
            self._sync.run(self._begin)
        except BaseException as error:  # KeyboardInterrupt may have come after the grant
            self._sync.crossing.post(self._withdraw, error)
            raise
        job.follow(inside=True)
        return job

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        job, limit_s = self._job, self._limit_s
        job.follow(inside=False)
        if limit_s is None and not job.joined:
            limit_s = self._default_s
        if limit_s is None or job.held_s() <= limit_s:
            self._sync.crossing.post(self._leave, job.leave, exc)
            return
        late = job.timeout(limit_s)
        self._sync.crossing.post(self._leave, job.leave_late, late)
        if exc is None:
            raise late

    # on the loop thread

    def _withdraw(self, error: BaseException) -> None:
        self._sync.crossing.jobs.discard(self._job)
        self._job.withdraw(error)

    async def _begin(self) -> None:
        await self._job.__aenter__()
        self._sync.crossing.jobs.add(self._job)

    def _leave(self, leave: Callable[[BaseException | None], object], error: BaseException | None) -> None:
        jobs = self._sync.crossing.jobs
        if self._job in jobs:  # else the batch has ended it
            jobs.discard(self._job)
            leave(error)

    def __repr__(self) -> str:
        return f"<SyncEnvironment {self._job!r}>"
