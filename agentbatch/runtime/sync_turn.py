"""A turn whose HTTP runs in a thread: the thread waits for the loop only to learn which worker an attempt goes to.

What one thread sends arrives in order, so n and the mean are up to date before its next environment job.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.to_thread
import openai
import tenacity

from agentbatch.errors import AgentBatchError, TrajectoryCancelled, TrajectoryTimeout, TurnTimeout
from agentbatch.runtime.job import EnvironmentJob, current_job, within_job
from agentbatch.runtime.retry import Retrial, RetryPolicy
from agentbatch.runtime.turn import Turn

if TYPE_CHECKING:
    from agentbatch.runtime.sync_trajectory import SyncTrajectory

R = TypeVar("R")


class ThreadTurn:
    """The thread's side of a `Turn`; `finish` is idempotent, as there."""

    __slots__ = (
        "_crossing", "_deadline", "_ended", "_endpoint", "_first_byte_s", "_resendable", "_started_s", "_sync",
        "_turn", "_usage", "reading", "streamed",
    )  # fmt: skip

    def __init__(self, sync: SyncTrajectory, endpoint: str, streamed: bool, resendable: bool) -> None:
        self._sync = sync
        self._crossing = sync.crossing
        self._endpoint = endpoint
        self.streamed = streamed
        self._resendable = resendable
        clock, limit_s = sync.trajectory.clock, sync.trajectory.batch.options.turn_timeout_s
        self._started_s = clock.now()
        self._deadline = None if limit_s is None else time.monotonic() + limit_s / clock.speedup
        self._turn: Turn | None = None
        self._ended = False
        self._first_byte_s: float | None = None
        self._usage: Any = None
        self.reading = False
        """A read of the body is under way; it learns how the turn ends, so that a close within it does not say."""

    def attempt(self, *, routed: bool, placed: bool) -> str:
        """Begin the next attempt, the turn with the first one.

        Args:
            routed: count it as in flight on its worker.
            placed: return which worker that is, which only the loop knows; without it nobody waits for the loop.

        Raises:
            TrajectoryClosed, BatchClosed: the trajectory has ended; where somebody waits.
        """
        if placed:
            return self._crossing.call(self._attempt, routed, current_job(), True)
        self._crossing.post(self._attempt, routed, current_job(), False)
        return ""

    # what runs on the loop thread, in the order in which the thread sent it

    def _attempt(self, routed: bool, job: EnvironmentJob | None, checked: bool) -> str:
        turn = self._turn
        if turn is None:
            trajectory = self._sync.trajectory
            if checked:
                trajectory.check_open()
            with within_job(job):
                self._turn = turn = trajectory.begin_turn(self._endpoint, self.streamed, self._started_s)
            turn.resendable = self._resendable
            self._crossing.turns.add(turn)
        turn.attempts += 1
        return turn.route() if routed else ""

    def _moves(self, error: BaseException) -> bool:
        return self._turn is not None and self._turn.moves(error)

    def _timeout(self) -> TurnTimeout | None:
        return None if self._turn is None else self._turn.timeout()

    def _attempt_failed(self, error: BaseException, retry_in_s: float | None) -> None:
        if self._turn is not None:
            self._turn.attempt_failed(error, retry_in_s)

    def _keep_open(self, close: Callable[[], Awaitable[None]]) -> None:
        if self._turn is not None:
            self._turn.keep_open(close)

    def _notice(self, kind: str, message: str) -> None:
        if self._turn is not None:
            self._turn.notice(kind, message)

    def _finish(self, error: BaseException | None, ended_s: float, first_byte_s: float | None, usage: Any) -> None:
        turn = self._turn
        if turn is not None:  # else the thread was interrupted before the turn began
            turn.first_byte_s = first_byte_s
            turn.read_usage(usage)
            turn.finish(error, ended_s)
            self._crossing.turns.discard(turn)

    # what the thread says

    def moves(self, error: BaseException) -> bool:
        """Tell whether the turn should go to another worker now, see `Turn.moves`."""
        return self._crossing.call(self._moves, error)

    def attempt_failed(self, error: BaseException, retry_in_s: float | None) -> None:
        """Report one failed attempt, see `Turn.attempt_failed`."""
        self._crossing.post(self._attempt_failed, error, retry_in_s)

    def keep_open(self, close: Callable[[], None]) -> None:
        """Remember how to close a body that streams on, for a trajectory that ends before it does."""

        async def close_from_loop() -> None:
            await anyio.to_thread.run_sync(close, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))

        self._crossing.post(self._keep_open, close_from_loop)

    def first_byte(self) -> None:
        """Note the first byte of a streamed body."""
        if self._first_byte_s is None:
            self._first_byte_s = self._sync.trajectory.clock.now()

    def read_usage(self, usage: Any) -> None:
        """Keep a usage record for the end of the turn."""
        if usage is not None:
            self._usage = usage

    def notice(self, kind: str, message: str) -> None:
        """Say once what must not be silent about a call."""
        self._crossing.post(self._notice, kind, message)

    def told_to_stop(self) -> TrajectoryCancelled | TrajectoryTimeout | TurnTimeout | None:
        """Return the error of a trajectory that was told to stop, or of a turn whose time is up, or None."""
        return self._sync.told_to_stop() or self.late()

    def left_s(self) -> float | None:
        """Return how long the turn may still take, wall seconds; None without a limit."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def late(self) -> TurnTimeout | None:
        """Return the error of a turn whose time is up, or None."""
        return self._crossing.call(self._timeout) if self.left_s() == 0.0 else None

    def reason(self, error: BaseException) -> TrajectoryCancelled | TrajectoryTimeout | TurnTimeout | None:
        """Return why we broke off what failed with `error`, or None where we did not, or it says so itself."""
        ours = isinstance(error, AgentBatchError) or not isinstance(error, Exception)
        return None if ours else self.told_to_stop()

    def bound(self, options: Any, timeout_s: float) -> None:
        """Bound the waits for bytes of one attempt by what is left of the turn: a thread cannot be stopped."""
        left_s = self.left_s()
        if left_s is not None:
            asked_s = options.timeout if isinstance(options.timeout, int | float) else timeout_s
            bound_s = max(0.001, min(left_s, asked_s))
            options.timeout = openai.Timeout(bound_s, connect=min(bound_s, 30.0))

    def pause(self, seconds: float) -> None:
        """Wait before a retry.

        Raises:
            TurnTimeout: the turn's time is up.
            TrajectoryCancelled, TrajectoryTimeout, TrajectoryClosed, BatchClosed: the trajectory ended meanwhile.
        """
        left_s = self.left_s()
        self._sync.pause(seconds if left_s is None else min(seconds, left_s))
        stop = self.told_to_stop()
        if stop is not None:
            raise stop

    def finish(self, error: BaseException | None = None) -> None:
        """End the turn: completed, or failed or cancelled by `error`."""
        if not self._ended:
            self._ended = True
            ended_s = self._sync.trajectory.clock.now()
            self._crossing.post(self._finish, error, ended_s, self._first_byte_s, self._usage)


def call_with_retries(send: Callable[[], R], turn: ThreadTurn, policy: RetryPolicy, attempts: int) -> R:
    """Call `send` up to `attempts` times under one turn; the rules are those of `retry.py`, the loop is its own.

    Raises:
        Exception: what the last attempt raised, or why the turn was told to stop.
    """
    retrial = Retrial(policy, turn, attempts, time.monotonic)

    def send_or_move() -> R:
        while True:
            try:
                return send()
            except AgentBatchError:  # not an attempt's failure
                raise
            except Exception as error:
                late = turn.late() if isinstance(error, openai.APITimeoutError) else None
                if late is not None:
                    raise late from error
                if not turn.moves(error):
                    raise
                turn.attempt_failed(error, 0.0)

    try:
        return send_or_move()
    except AgentBatchError:
        raise
    except Exception as error:
        if not retrial.goes_on_after(error):
            raise

    def again() -> R:
        retrial.meet_first()
        return send_or_move()

    retrying = tenacity.Retrying(sleep=turn.pause, **retrial.options())
    try:
        return retrying(again)
    except AgentBatchError:
        raise
    except Exception as error:
        turn.attempt_failed(error, None)
        raise
