"""One trajectory: its label, its client, its environment jobs, and what it has used so far."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio

from agentbatch.errors import TrajectoryCancelled, TrajectoryClosed
from agentbatch.events import AttemptFailed
from agentbatch.policy.caas import Progress
from agentbatch.runtime import current
from agentbatch.runtime.job import EnvironmentJob
from agentbatch.runtime.results import Timing, Usage
from agentbatch.runtime.stream import close_within
from agentbatch.runtime.tool import run_tool
from agentbatch.runtime.turn import Turn, describe, outcome_of

if TYPE_CHECKING:
    from agentbatch.runtime.batch import AgentBatch
    from agentbatch.runtime.client import TrajectoryClient
    from agentbatch.runtime.gate import Ticket


class Trajectory:
    """The complete run of one task, from admission to its last turn or environment stage.

    Made by `AgentBatch.map` or `AgentBatch.trajectory`; lives while its admission slot is held.

    Attributes:
        key: the task's key, unique in its batch.
        label: what every inference request of this trajectory carries (spec §3).
        progress: n and the mean of Eq. 14-15: turns completed and their seconds.
    """

    def __init__(self, batch: AgentBatch, key: str, label: str, submitted_s: float) -> None:
        self.batch = batch
        self.key = key
        self.label = label
        self.progress = Progress()
        self.place = batch.whereabouts.place()
        self.open_streams: dict[Turn, Callable[[], Awaitable[None]]] = {}
        self._client: TrajectoryClient | None = None
        self._scope = anyio.CancelScope()
        self._cancel_reason: str | None = None
        self._submitted_s = submitted_s
        self._admitted_s: float | None = None
        self._open = False
        self._turns_launched = 0
        self._jobs_open = 0
        self._spent = dict.fromkeys(("inference_s", "environment_s", "environment_wait_s"), 0.0)
        self._used = dict.fromkeys(Usage.__dataclass_fields__, 0)

    # -- what a harness uses ------------------------------------------------------------------------------------

    @property
    def client(self) -> TrajectoryClient:
        """An `AsyncOpenAI` whose requests carry this trajectory's label, are timed and counted."""
        if self._client is None:
            self._client = self.batch.build_client(self)
        return self._client

    def environment(self, resource: str = "default") -> EnvironmentJob:
        """Open one environment job: `async with traj.environment():` waits for a slot and holds it for the block.

        Args:
            resource: which of the batch's named limits the job falls under.

        Raises:
            UsageError: the batch has no such resource.
        """
        return EnvironmentJob(self, self.batch.gate(resource))

    async def act(self, tool: Callable[..., Any], *args: Any, resource: str = "default") -> Any:
        """Run `tool(*args)` as an environment job of one operation and return what it returns.

        A coroutine function is awaited; anything else runs in a worker thread, which keeps its slot until it really
        ends, cancelled or not. Never retried. Keyword arguments go through `functools.partial`.
        """
        async with self.environment(resource):
            # A limiter of its own: slots are the only limit. A shared one would be a second, and a tool whose thread
            # runs another tool inside its own job would wait for itself (ha-mcp#2369).
            return await run_tool(tool, args, anyio.CapacityLimiter(1))

    def cancel(self, reason: str = "cancelled by the harness") -> None:
        """Cancel this trajectory alone; its result is `Failed` with a `TrajectoryCancelled` that gives `reason`."""
        self._cancel_reason = reason
        self._scope.cancel()

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
        return Usage(**self._used)

    def timing(self, ended_s: float | None = None) -> Timing:
        """Where the time went, up to `ended_s` or to now."""
        return Timing(
            submitted_s=self._submitted_s,
            admitted_s=self._admitted_s,
            ended_s=self.clock.now() if ended_s is None else ended_s,
            **self._spent,
        )

    def __repr__(self) -> str:
        state = "open" if self._open else "waiting" if self._admitted_s is None else "ended"
        return f"<Trajectory {self.key!r} {state} turns={self.progress.turns}>"

    # -- what the runtime uses ----------------------------------------------------------------------------------

    @property
    def clock(self) -> Any:
        """The batch's clock."""
        return self.batch.clock

    @property
    def workers(self) -> Any:
        """The batch's workers."""
        return self.batch.workers

    @property
    def batch_order(self) -> Any:
        """The batch's environment order."""
        return self.batch.order

    def next_entry(self) -> int:
        """Return the next global entry number, e_j of Eq. 16."""
        return self.batch.next_entry()

    def redact(self, text: str) -> str:
        """Take the API key out of `text`."""
        return self.batch.redact(text)

    def check_open(self) -> None:
        """Raise TrajectoryClosed, or BatchClosed, unless the trajectory is admitted and running."""
        self.batch.check_open()
        if not self._open:
            raise TrajectoryClosed(
                f"trajectory {self.key!r} is not running: use its client and environment() only inside the task's "
                "function or the `async with batch.trajectory(…)` block"
            )

    @asynccontextmanager
    async def running(self, admitted_s: float) -> AsyncIterator[Trajectory]:
        """Be the current trajectory for a block; whatever ends the block ends the trajectory."""
        self._admitted_s = admitted_s
        self._open = True
        self.place.enter(admitted_s)
        before = current.trajectory.get()
        current.trajectory.set(self)
        try:
            with self._scope:
                yield self
            if self._scope.cancelled_caught:
                raise TrajectoryCancelled(self._cancel_reason or "cancelled")
        finally:
            current.trajectory.set(before)
            self._open = False
            await self._close_streams()
            if self._jobs_open:
                self.batch.hub.notice(
                    "overrun",
                    f"trajectory {self.key!r} ended while {self._jobs_open} environment job(s) of it still run; "
                    "each keeps its slot until it ends",
                    label=self.label,
                )

    async def _close_streams(self) -> None:
        for close in tuple(self.open_streams.values()):
            await close_within(close)

    def begin_turn(self, endpoint: str, streamed: bool) -> Turn:
        """Start the clock of one model call."""
        self._turns_launched += 1
        turn = Turn(self, endpoint, streamed, self._turns_launched)
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
        self._spent["inference_s"] += seconds
        if error is None:
            self.progress = self.progress.completed(seconds)
            used = self._used
            used["turns"] += 1
            if turn.prompt_tokens is None:
                used["turns_without_usage"] += 1
            used["prompt_tokens"] += turn.prompt_tokens or 0
            used["cached_tokens"] += turn.cached_tokens or 0
            used["output_tokens"] += turn.output_tokens or 0
            self.batch.account.turns_completed += 1
        if self.batch.hub.listening:
            text = None if error is None else self.redact(describe(error))
            outcome = "ok" if error is None else outcome_of(error)
            self.batch.hub.emit(turn.event(self.label, ended_s, text, outcome, worker))

    def attempt_failed(self, event: AttemptFailed) -> None:
        """Count a failed attempt of a turn."""
        self._used["attempts_failed"] += 1
        self.batch.account.attempts_failed += 1
        self.batch.hub.emit(event)

    def job_granted(self) -> None:
        """Count a job that holds its slot."""
        self._jobs_open += 1

    def job_ended(self, job: EnvironmentJob, ticket: Ticket, ended_s: float, error: BaseException | None) -> None:
        """Count a job that gave its slot back, or withdrew before it had one."""
        if ticket.granted_s is None:
            self._spent["environment_wait_s"] += ended_s - ticket.asked_s
        else:
            self._spent["environment_wait_s"] += ticket.granted_s - ticket.asked_s
            self._spent["environment_s"] += ended_s - ticket.granted_s
            self._jobs_open -= 1
            self._used["environment_jobs"] += 1
            self.batch.account.jobs_completed += 1
        if self.batch.hub.listening:
            text = None if error is None else self.redact(describe(error))
            outcome = "ok" if error is None else outcome_of(error)
            self.batch.hub.emit(job.event(self.label, ticket, ended_s, text, outcome))
