"""One environment job: waits in its queue for an environment slot and holds it while its block runs (spec §2).

Lives here: nesting rules and the job's event. Who is next is `policy/caas`; waking is `runtime/gate`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel

from agentbatch.errors import EnvironmentTimeout, SlotConflict
from agentbatch.events import JobEnded, Outcome
from agentbatch.runtime.failure import is_timeout
from agentbatch.runtime.gate import Gate, Ticket

if TYPE_CHECKING:
    from agentbatch.runtime.trajectory import Trajectory

_current_job: ContextVar[EnvironmentJob | None] = ContextVar("agentbatch_job", default=None)


def current_job() -> EnvironmentJob | None:
    """Return the innermost environment job of this task's lineage, ended or not."""
    return _current_job.get()


@contextmanager
def within_job(job: EnvironmentJob | None) -> Iterator[None]:
    """Make `job` the innermost one of the calling thread for a block."""
    token = _current_job.set(job)
    try:
        yield
    finally:
        _current_job.reset(token)


class EnvironmentJob:
    """An `async with` block that runs while its job holds an environment slot.

    Inside a block of the same resource it joins the slot already held instead of asking for a second one, since that
    could wait for itself (k8s_sandbox#126, ha-mcp#2369); the slot goes back when the last of them ends. A time-out of
    its own counts from its entry then, and marks the job it joined. A task that outlives the block queues anew. Use
    each object once.

    Args:
        timeout_s: seconds after which the block is cancelled. default_s: the same for a block that joins no other.

    Raises:
        SlotConflict: on entry, when the task holds a slot of another resource of the same batch, or the object was
            used before.
        TrajectoryClosed: on entry, when the trajectory has ended.
        EnvironmentTimeout: on exit, when the block held its slot for longer than its time-out, and was cancelled.
    """

    __slots__ = (
        "_counted", "_default_s", "_entered_s", "_gate", "_host", "_late", "_operations", "_outer", "_overrun",
        "_scope", "_ticket", "_timeout_s", "_trajectory", "_turns", "_used", "_users", "output",
    )  # fmt: skip

    def __init__(
        self, trajectory: Trajectory, gate: Gate, timeout_s: float | None = None, default_s: float | None = None
    ) -> None:
        self._trajectory = trajectory
        self._gate = gate
        self._timeout_s = timeout_s
        self._default_s = default_s
        self._entered_s = 0.0
        self._scope: anyio.CancelScope | None = None
        self._counted = False
        self.output = b"", b""  # what its command had written when it was stopped
        self._late: BaseException | None = None
        """What told the job to stop, where it did not end at once."""
        self._overrun = False
        self._ticket: Ticket | None = None
        self._host: EnvironmentJob | None = None
        self._outer: EnvironmentJob | None = None
        self._users = 0
        self._operations = 0
        self._turns = 0
        self._used = False

    @property
    def resource(self) -> str:
        """Name of the resource whose slot this job uses."""
        return self._gate.name

    @property
    def holds_slot(self) -> bool:
        """Whether the slot is held now, by this block or by one that joined it."""
        return self._ticket is not None and self._ticket.open and self._ticket.granted_s is not None

    async def __aenter__(self) -> EnvironmentJob:
        if self._used:
            raise SlotConflict("an environment() block was entered twice: call environment() anew for each block")
        self._used = True
        trajectory = self._trajectory
        trajectory.check_open()
        outer = _current_job.get()
        host = outer._slot_holder() if outer is not None else None
        if host is not None and host._trajectory.batch is trajectory.batch:
            if host._gate is not self._gate:
                raise SlotConflict(
                    f"a task holding a slot of {host.resource!r} asked for one of {self.resource!r}: two trajectories "
                    "doing so in opposite order would wait for ever; leave the first block before entering the second"
                )
            host._users += 1
            host._operations += 1
            self._host = host
            self._entered_s = trajectory.clock.now()
        else:
            self._entered_s = await self._wait()
            self._outer = outer
            _current_job.set(self)
            if self._timeout_s is None:
                self._timeout_s = self._default_s
        if self._timeout_s is not None:
            self._start_timeout(self._timeout_s)
        return self

    def _start_timeout(self, timeout_s: float) -> None:
        """Cancel the block when its time, counted from the grant, is up."""
        clock = self._trajectory.clock
        left_s = timeout_s - self.held_s()
        self._scope = anyio.CancelScope(deadline=anyio.current_time() + left_s / clock.speedup)
        self._scope.__enter__()

    async def _wait(self) -> float:
        """Wait for the slot; return when it was granted."""
        await anyio.lowlevel.checkpoint_if_cancelled()  # a cancelled task must not take a slot
        trajectory = self._trajectory
        batch, progress = trajectory.batch, trajectory.progress
        self._turns = progress.turns
        asked_s = trajectory.clock.now()
        began = perf_counter()
        key = batch.keys[self.resource].key(progress, asked_s, batch.next_entry())
        self._ticket = ticket = self._gate.ask(key, asked_s)
        batch.account.priority_s += perf_counter() - began  # wall seconds (spec §8)
        trajectory.place.job_asked(self.resource, asked_s)
        if ticket.granted_s is None:
            try:
                await ticket.wait()
            except BaseException as error:
                ticket.granted_s = None  # granted in this very tick, perhaps: its block never began all the same
                self._end(error)
                raise
        self._users = self._operations = 1
        granted_s = asked_s if ticket.granted_s is None else ticket.granted_s
        trajectory.tally.job_granted()
        trajectory.place.job_granted(self.resource, granted_s)
        return granted_s

    def _slot_holder(self) -> EnvironmentJob | None:
        """Return the job whose block still holds a slot that this lineage may join, or None."""
        job: EnvironmentJob | None = self
        while job is not None:
            if job.holds_slot:
                return job
            job = job._outer
        return None

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._host is None:
            _current_job.set(self._outer)
        try:
            timeout = self._stop_timeout(exc_type, exc, tb)
        except BaseException as rest:  # trio's scope raises what a group holds beside its cancellations
            self.leave(rest)
            raise
        handed_on = self.leave(timeout or exc)
        if handed_on:
            # the next job begins now, not once this task has built its next request: that held a slot idle for 1.7 ms
            await anyio.lowlevel.cancel_shielded_checkpoint()
        if timeout is not None:
            raise timeout from None

    def _stop_timeout(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> EnvironmentTimeout | None:
        """End the time-out's scope; return the error to raise where it cancelled the block."""
        scope = self._scope
        if scope is None:
            return None
        self._scope = None
        timeout: EnvironmentTimeout | None = None
        try:
            scope.__exit__(exc_type, exc, tb)
        finally:
            if scope.cancel_called:
                timeout = self.timeout(self._timeout_s or 0.0)
                timeout.stdout, timeout.stderr = self.output
                self._mark_late(timeout)
        return timeout if scope.cancelled_caught else None

    def timeout(self, limit_s: float) -> EnvironmentTimeout:
        """Build the error of a job whose time is up."""
        return EnvironmentTimeout(
            f"a job of {self._trajectory.key!r} held a slot of {self.resource!r} for longer than {limit_s:g} s: "
            "raise timeout_s or environment_timeout_s, or see what its tool was doing"
        )

    def _mark_late(self, error: BaseException) -> None:
        """Note what told the job to stop, and count a time-out when it strikes, once."""
        holder = self._host or self
        if not isinstance(holder._late, Exception):
            holder._late = error
        if is_timeout(error) and not holder._counted:
            holder._counted = True
            holder._trajectory.tally.timed_out()

    # -- for threads, see `sync_environment` ------------------------------------------------------------------------

    def follow(self, inside: bool) -> None:
        """Make this the current job of the calling thread, or the one around it current again."""
        if self._host is None:
            _current_job.set(self if inside else self._outer)

    @property
    def joined(self) -> bool:
        """Whether it uses the slot of a job around it."""
        return self._host is not None

    def held_s(self) -> float:
        """Return how long the slot has been held for this block, seconds: since its grant, or since it joined."""
        return float(self._trajectory.clock.now() - self._entered_s)

    def leave_late(self, error: BaseException) -> None:
        """Leave as an overrun: a thread went on although the job's time was up."""
        self.overrun(error, "a thread")
        self.leave(error)

    def withdraw(self, error: BaseException) -> None:
        """Give back what a thread got although it was interrupted while it waited."""
        if self._host is not None or self.holds_slot:
            self.leave(error)

    def join(self) -> None:
        """Count one more user of the slot, who calls `leave` in the end."""
        (self._host or self)._users += 1

    def leave(self, error: BaseException | None) -> bool:
        """Count one user out; True when the slot went to a waiter, as the last one's does."""
        holder = self._host or self
        holder._users -= 1
        return holder._users == 0 and holder._end(error)

    def overrun(self, error: BaseException, what: str) -> None:
        """Note that something of this job runs on, though `error` told it to stop."""
        holder = self._host or self
        holder._overrun = True
        self._mark_late(error)
        self._trajectory.batch.hub.notice(
            "overrun",
            f"{what} in a job of {self._trajectory.key!r} runs on after it was told to stop; its slot of "
            f"{self.resource!r} stays taken until it ends",
            label=self._trajectory.label,
        )

    def _end(self, error: BaseException | None) -> bool:
        ticket = self._ticket
        if ticket is None or not ticket.open:
            return False
        if error is not None and ticket.granted_s is not None:
            self._mark_late(error)
        ended_s = self._trajectory.clock.now()
        handed_on = self._gate.leave(ticket)
        left = self._trajectory.place.job_withdrew if ticket.granted_s is None else self._trajectory.place.job_ended
        left(self.resource, ended_s)
        self._trajectory.job_ended(self, ticket, ended_s, self._late or error)
        return handed_on

    def event(
        self, label: str, ticket: Ticket, ended_s: float, *, error: str | None, outcome: Outcome, timed_out: bool
    ) -> JobEnded:
        """Build the event that records this job."""
        return JobEnded(
            label=label,
            resource=self.resource,
            turns=self._turns,
            asked_s=ticket.asked_s,
            granted_s=ticket.granted_s,
            ended_s=ended_s,
            outcome="overrun" if self._overrun else outcome,
            operations=max(1, self._operations),
            error=error,
            timed_out=timed_out,
        )

    def __repr__(self) -> str:
        return f"<EnvironmentJob {self.resource!r} of {self._trajectory.key!r} {self._ticket!r}>"
