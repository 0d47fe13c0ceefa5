"""One trajectory: its label, its client, its environment jobs, and what it has used so far."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio

from agentbatch.errors import TrajectoryCancelled, TrajectoryClosed, UsageError
from agentbatch.events import AttemptFailed
from agentbatch.policy.caas import Progress
from agentbatch.runtime import current
from agentbatch.runtime.checks import check_seconds
from agentbatch.runtime.ending import Ending
from agentbatch.runtime.failure import describe, is_timeout, outcome_of
from agentbatch.runtime.job import EnvironmentJob
from agentbatch.runtime.process import run_in_group
from agentbatch.runtime.results import Timing, Usage
from agentbatch.runtime.stream import close_within
from agentbatch.runtime.sync_trajectory import SyncTrajectory
from agentbatch.runtime.tally import Tally
from agentbatch.runtime.tool import run_in_job
from agentbatch.runtime.turn import Turn

if TYPE_CHECKING:
    from agentbatch.runtime.batch import AgentBatch
    from agentbatch.runtime.child import ChildTrajectory
    from agentbatch.runtime.client import TrajectoryClient
    from agentbatch.runtime.gate import Ticket


class Trajectory:
    """The complete run of one task, from admission to its last turn or environment stage.

    Made by `AgentBatch.map` or `AgentBatch.trajectory`; lives while its admission slot is held.

    Attributes:
        batch: the batch that it runs in.
        key: the task's key, unique in its batch.
        label: what every inference request of this trajectory carries (spec §3).
        progress: n and the mean of Eq. 14-15: turns completed and their seconds; seconds that its jobs held slots.
        timed_out: whether its own time-out ended it.
        sync: the same trajectory for plain functions in threads.
    """

    def __init__(
        self, batch: AgentBatch, key: str, label: str, submitted_s: float, tally: Tally | None = None
    ) -> None:
        self.batch = batch
        self.clock = batch.clock
        self.key = key
        self.label = label
        self.progress = Progress()
        self.place = batch.whereabouts.place()
        self.open_streams: dict[Turn, Callable[[], Awaitable[None]]] = {}
        self._client: TrajectoryClient | None = None
        self.ending = Ending(key, batch.options.trajectory_timeout_s)
        self._submitted_s = submitted_s
        self._admitted_s: float | None = None
        self._open = False
        self._turns_launched = 0
        self.tally = Tally() if tally is None else tally
        self._children: dict[str, ChildTrajectory] = {}
        self.timed_out = False
        self.outlived_by: anyio.Event | None = None
        """Set when the thread has ended that ran on after it was told to stop, and that keeps the admission slot."""
        self.sync = SyncTrajectory(self)

    # -- what a harness uses ------------------------------------------------------------------------------------

    @property
    def client(self) -> TrajectoryClient:
        """An `AsyncOpenAI` whose requests carry this trajectory's label, are timed and counted."""
        if self._client is None:
            self._client = self.batch.build_client(self)
        return self._client

    def environment(self, resource: str = "default", *, timeout_s: float | None = None) -> EnvironmentJob:
        """Open one environment job: `async with traj.environment():` waits for a slot and holds it for the block.

        Args:
            resource: which of the batch's named limits the job falls under.
            timeout_s: seconds from the grant after which the block is cancelled; default `environment_timeout_s`.
                Within another block, whose slot it joins, from its entry; by default only that of the block around.

        Raises:
            UsageError: the batch has no such resource, or the time-out is none.
        """
        gate = self.batch.gate(resource)
        own_s = None if timeout_s is None else check_seconds("timeout_s", timeout_s)
        return EnvironmentJob(self, gate, own_s, self.batch.options.environment_timeout_s.get(resource))

    async def act(
        self, tool: Callable[..., Any], *args: Any, resource: str = "default", timeout_s: float | None = None
    ) -> Any:
        """Run `tool(*args)` as an environment job of one operation and return what it returns.

        A coroutine function is awaited; anything else runs in a worker thread. A thread cannot be stopped: where its
        caller is cancelled or its time is up, the caller goes on and the slot stays taken until the thread ends (an
        `overrun`). Never retried. Keyword arguments go through `functools.partial`.

        Raises:
            EnvironmentTimeout: it took longer than `timeout_s` from the grant.
        """
        async with self.environment(resource, timeout_s=timeout_s) as job:
            return await run_in_job(tool, args, job, self.batch.background)

    async def run_process(
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
        """Run a command as an environment job of one operation; returns its exit status and output, whatever they are.

        The command leads a process group of its own. When its time is up, or its caller is cancelled, the whole group
        gets SIGTERM and, `grace_s` wall seconds later, SIGKILL; the slot stays taken until the group is gone. What
        ignored SIGTERM is an `overrun`. It has ended when its output has: redirect that of a server left in the
        background (`server > log 2>&1 &`), which is then left alone.

        Args:
            command: a list of arguments, or a line for the shell.
            env: the whole environment; default this process's own.

        Raises:
            OSError: the command cannot be started.
            EnvironmentTimeout: it took longer than `timeout_s` from the grant; `stdout` and `stderr` hold what it said.
        """
        async with self.environment(resource, timeout_s=timeout_s) as job:
            return await run_in_group(
                command, stdin=stdin, cwd=cwd, env=env, grace_s=grace_s, job=job, beside=self.batch.background
            )

    def child(self, name: str) -> ChildTrajectory:
        """Return the child called `name` (a sub-agent, a judge, a simulated user); asked for again, the same one.

        It has a label of its own, ending in `/name`, so that its prompts are cached and counted apart; it starts from
        this trajectory's chain (n and mean), and its turns do not change it. It lives in this admission slot.

        Raises:
            UsageError: the name is empty.
            TrajectoryClosed: this trajectory is not running.
        """
        self.check_open()
        if not name:
            raise UsageError("a child needs a name, such as 'user' or 'judge'")
        if name not in self._children:
            from agentbatch.runtime.child import ChildTrajectory  # noqa: PLC0415 - it derives from this class

            self._children[name] = ChildTrajectory(self, name)
        return self._children[name]

    def cancel(self, reason: str = "cancelled by the harness") -> None:
        """Cancel this trajectory alone; its result is `Failed` with a `TrajectoryCancelled` that gives `reason`."""
        self.ending.cancel(reason)
        self.sync.stop(TrajectoryCancelled(reason))

    @property
    def is_open(self) -> bool:
        """Whether the trajectory is admitted and has not ended."""
        return self._open

    @property
    def admitted_s(self) -> float | None:
        """When the trajectory got its admission slot, seconds; None when it never ran."""
        return self._admitted_s

    @property
    def usage(self) -> Usage:
        """Tokens, turns and jobs so far."""
        return self.tally.usage

    def timing(self, ended_s: float | None = None) -> Timing:
        """Where the time went, up to `ended_s` or to now."""
        return Timing(
            submitted_s=self._submitted_s,
            admitted_s=self._admitted_s,
            ended_s=self.clock.now() if ended_s is None else ended_s,
            **self.tally.spent,
        )

    def __repr__(self) -> str:
        state = "open" if self._open else "waiting" if self._admitted_s is None else "ended"
        return f"<Trajectory {self.key!r} {state} turns={self.progress.turns}>"

    # -- what the runtime uses ----------------------------------------------------------------------------------

    @property
    def workers(self) -> Any:
        """The batch's workers."""
        return self.batch.workers

    def redact(self, text: str) -> str:
        """Take the API key out of `text`."""
        return self.batch.redact(text)

    def check_open(self) -> None:
        """Raise TrajectoryClosed, or BatchClosed, unless the trajectory is admitted and running."""
        self.batch.check_open()
        self.check_running()

    def check_running(self) -> None:
        """Raise TrajectoryClosed unless the trajectory is admitted and running; in threads too."""
        if not self.is_open:
            raise TrajectoryClosed(
                f"trajectory {self.key!r} is not running: use it only inside the task's function or its block"
            )

    @asynccontextmanager
    async def running(self, admitted_s: float) -> AsyncIterator[Trajectory]:
        """Be the current trajectory for a block; whatever ends the block ends the trajectory."""
        self._admitted_s = admitted_s
        self._open = True
        self.ending.start(self.clock, admitted_s)
        self.place.enter(admitted_s)
        before = current.trajectory.get()
        current.trajectory.set(self)
        try:
            with self.ending.scope:
                yield self
            if self.ending.scope.cancelled_caught:
                raise self.ending.error()
        finally:
            current.trajectory.set(before)
            self._open = False
            self.sync.stop()
            # also where the block swallowed its cancellation, or raised something else over it
            self.timed_out = self.ending.timed_out
            if self.timed_out:
                self.tally.timed_out()
            await self.close_streams()
            if self.tally.jobs_open:
                self.batch.hub.notice(
                    "overrun",
                    f"trajectory {self.key!r} ended while {self.tally.jobs_open} environment job(s) of it still run; "
                    "each keeps its slot until it ends",
                    label=self.label,
                )

    async def close_streams(self) -> None:
        """Close what streams on, which ends its turns."""
        for close in tuple(self.open_streams.values()):
            await close_within(close)

    def begin_turn(self, endpoint: str, streamed: bool, started_s: float | None = None) -> Turn:
        """Start the clock of one model call, now or at `started_s` where a thread launched it."""
        self._turns_launched += 1
        turn = Turn(self, endpoint, streamed, self._turns_launched, started_s)
        if turn.in_environment:
            self.batch.account.inference_in_environment += 1
            self.batch.hub.notice(
                "inference-in-environment",
                "a model call was made inside an environment() block, whose slot idles meanwhile; all such are counted",
                label=self.label,
                once=True,
            )
        return turn

    def turn_ended(self, turn: Turn, ended_s: float, error: BaseException | None, worker: str) -> None:
        """Count a finished turn: only completed ones enter n and the mean (spec §2)."""
        seconds = ended_s - turn.started_s
        self.place.turn_ended(turn.launch_mark, turn.started_s, ended_s, turn.output_tokens, error is None)
        self.tally.turn_ended(turn, seconds, error)
        if error is None:
            self.progress = self.progress.completed(seconds)
            self.batch.account.turns_completed += 1
        if self.batch.hub.listening:
            self.batch.hub.emit(turn.event(self.label, ended_s, worker=worker, **self._told(error)))

    def attempt_failed(self, event: AttemptFailed) -> None:
        """Count a failed attempt of a turn."""
        self.tally.attempt_failed()
        self.batch.account.attempts_failed += 1
        self.batch.hub.emit(event)

    def job_ended(self, job: EnvironmentJob, ticket: Ticket, ended_s: float, error: BaseException | None) -> None:
        """Count a job that gave its slot back, or withdrew before it had one."""
        self.tally.job_ended(ticket, ended_s)
        if ticket.granted_s is not None:
            # however it ended, and an overrun to its real end: the slot was held
            self.progress = self.progress.acted(ended_s - ticket.granted_s)
            self.batch.account.jobs_completed += 1
        if self.batch.hub.listening:
            self.batch.hub.emit(job.event(self.label, ticket, ended_s, **self._told(error)))

    def _told(self, error: BaseException | None) -> dict[str, Any]:
        """Return what an event says about how something ended."""
        text = None if error is None else self.redact(describe(error))
        return {"error": text, "outcome": "ok" if error is None else outcome_of(error), "timed_out": is_timeout(error)}
