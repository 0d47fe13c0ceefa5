"""One inference turn: from client launch to the last byte, retries and back-off included (spec §2, tau_m)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from agentbatch.errors import TurnTimeout
from agentbatch.events import AttemptFailed, Outcome, TurnEnded
from agentbatch.runtime.failure import describe
from agentbatch.runtime.job import current_job

if TYPE_CHECKING:
    from agentbatch.runtime.trajectory import Trajectory

R = TypeVar("R")


def _field(record: Any, name: str) -> Any:
    return record.get(name) if isinstance(record, dict) else getattr(record, name, None)


class Turn:
    """Counts one model call for its trajectory; `finish` is idempotent, so that no path can end it twice."""

    __slots__ = (
        "_deadline", "_left", "_limit_s", "_trajectory", "attempts", "cached_tokens", "endpoint", "first_byte_s",
        "in_environment", "launch_mark", "number", "open", "output_tokens", "prompt_tokens", "reading", "resendable",
        "started_s", "streamed", "worker",
    )  # fmt: skip

    def __init__(
        self, trajectory: Trajectory, endpoint: str, streamed: bool, number: int, started_s: float | None = None
    ) -> None:
        self._trajectory = trajectory
        self.endpoint = endpoint
        self.streamed = streamed
        self.number = number
        job = current_job()
        self.in_environment = job is not None and job.holds_slot
        self.started_s = trajectory.clock.now() if started_s is None else started_s
        self._limit_s = limit_s = trajectory.batch.options.turn_timeout_s
        self._deadline = None if limit_s is None else trajectory.clock.wall() + limit_s / trajectory.clock.speedup
        self.launch_mark = trajectory.place.turn_began(self.started_s)
        self.first_byte_s: float | None = None
        self.attempts = 0
        self.worker = ""
        self.resendable = True
        """Whether its body can be sent a second time."""
        self._left: frozenset[str] = frozenset()
        self.prompt_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.output_tokens: int | None = None
        self.open = True
        self.reading = False
        """A read of the body is under way; it learns how the turn ends, so that a close within it does not say."""

    async def within_limit(self, call: Callable[[], Awaitable[R]]) -> R:
        """Await `call`, for as long as the turn may still take.

        Raises:
            TurnTimeout: the turn's time is up, counted from its launch.
        """
        if self._deadline is None:
            return await call()
        with anyio.CancelScope(deadline=self._deadline) as scope:
            return await call()
        assert scope.cancelled_caught  # noqa: S101 - nothing else comes past the return
        raise self.timeout()

    def _is_late(self) -> bool:
        return self._deadline is not None and self._trajectory.clock.wall() >= self._deadline

    def timeout(self) -> TurnTimeout:
        """Build the error of a turn whose time is up."""
        where = f" on {self.worker}" if self.worker else ""
        return TurnTimeout(
            f"turn {self.number} of {self._trajectory.key!r} took longer than turn_timeout_s={self._limit_s:g} s "
            f"(attempts: {self.attempts}){where}: raise it, or see what the server was doing"
        )

    def notice(self, kind: str, message: str) -> None:
        """Say once what must not be silent about a call."""
        self._trajectory.batch.hub.notice(kind, message, label=self._trajectory.label, once=True)

    def route(self) -> str:
        """Choose the worker for the next attempt and count it as in flight there."""
        self.unroute()
        self.worker = self._trajectory.workers.take(self._trajectory.label)
        return self.worker

    def unroute(self) -> None:
        """Take the turn off its worker's count, as during back-off."""
        if self.worker:
            self._trajectory.workers.give_back(self.worker)
            self.worker = ""

    def moves(self, error: BaseException) -> bool:
        """Take a worker that `error` shows dead out; True where the turn should go to a live one now.

        It leaves each worker once at most, so that workers that come and go cannot keep it for ever.
        """
        worker = self.worker
        if not worker or not self._trajectory.workers.blame(worker, error):
            return False
        if not self.resendable or worker in self._left:
            return False
        self._left |= {worker}
        return True

    def keep_open(self, close: Callable[[], Awaitable[None]]) -> None:
        """Remember how to close a body that streams on, for a trajectory that ends before it does."""
        if self.open:
            self._trajectory.open_streams[self] = close

    def first_byte(self) -> None:
        """Note the first byte of a streamed body."""
        if self.first_byte_s is None:
            self.first_byte_s = self._trajectory.clock.now()

    def read_usage(self, usage: Any) -> None:
        """Take the token counts from a usage record of chat, completions or responses, model or mapping."""
        if usage is None:
            return
        prompt, output = _field(usage, "prompt_tokens"), _field(usage, "completion_tokens")
        details = _field(usage, "prompt_tokens_details")
        if prompt is None:
            prompt, output = _field(usage, "input_tokens"), _field(usage, "output_tokens")
            details = _field(usage, "input_tokens_details")
        if prompt is not None:
            self.prompt_tokens, self.output_tokens = prompt, output
        if details is not None:
            self.cached_tokens = _field(details, "cached_tokens")

    def attempt_failed(self, error: BaseException, retry_in_s: float | None) -> None:
        """Report one failed attempt; the turn goes on after `retry_in_s` wall seconds, or ends when that is None."""
        worker = self.worker
        if worker:
            self._trajectory.workers.attempt_failed(worker)
        self.unroute()
        self._trajectory.attempt_failed(
            AttemptFailed(
                at_s=self._trajectory.clock.now(),
                label=self._trajectory.label,
                turn=self.number,
                attempt=self.attempts,
                worker=worker,
                error=self._trajectory.redact(describe(error)),
                status=getattr(error, "status_code", None),
                retry_in_s=None if retry_in_s is None else retry_in_s * self._trajectory.clock.speedup,
            )
        )

    def finish(self, error: BaseException | None = None, ended_s: float | None = None) -> None:
        """End the turn: completed, or failed or cancelled by `error`; now, or at `ended_s` where a thread saw it."""
        if not self.open:
            return
        self.open = False
        if error is not None and not isinstance(error, Exception) and self._is_late():
            error = self.timeout()  # our own time-out, met where it was still a cancellation
        if ended_s is None:
            ended_s = self._trajectory.clock.now()
        worker = self.worker
        if worker and error is None:
            self._trajectory.workers.turn_completed(worker)
        elif worker and error is not None:  # a reply that broke half-way: an error to the caller, never sent again
            self._trajectory.workers.blame(worker, error)
        self.unroute()
        self._trajectory.open_streams.pop(self, None)
        self._trajectory.turn_ended(self, ended_s, error, worker)

    def event(
        self, label: str, ended_s: float, *, error: str | None, outcome: Outcome, worker: str, timed_out: bool
    ) -> TurnEnded:
        """Build the event that records this turn."""
        return TurnEnded(
            label=label,
            turn=self.number,
            started_s=self.started_s,
            first_byte_s=self.first_byte_s,
            ended_s=ended_s,
            outcome=outcome,
            endpoint=self.endpoint,
            streamed=self.streamed,
            attempts=self.attempts,
            worker=worker,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            output_tokens=self.output_tokens,
            in_environment=self.in_environment,
            error=error,
            timed_out=timed_out,
        )
