"""Why a trajectory is told to stop: cancelled by its harness, out of time, or together with its batch."""

from __future__ import annotations

import anyio

from agentbatch.errors import TrajectoryCancelled, TrajectoryTimeout
from agentbatch.runtime.clock import BatchClock


class Ending:
    """The scope that a trajectory's block runs in, and the reason where somebody cancelled it.

    Args:
        key: the trajectory's. limit_s: `trajectory_timeout_s`, or None.
    """

    def __init__(self, key: str, limit_s: float | None) -> None:
        self._key = key
        self._limit_s = limit_s
        self._reason: str | None = None
        self.scope = anyio.CancelScope()

    def start(self, clock: BatchClock, admitted_s: float) -> None:
        """Set the deadline, counted from the admission."""
        if self._limit_s is not None:
            left_s = self._limit_s - (clock.now() - admitted_s)
            self.scope.deadline = anyio.current_time() + left_s / clock.speedup

    def cancel(self, reason: str) -> None:
        """Cancel the block; the first reason stays."""
        self._reason = self._reason or reason
        self.scope.cancel()

    @property
    def timed_out(self) -> bool:
        """Whether the time-out ended the block, also one that swallowed its cancellation."""
        return self.scope.cancel_called and self._reason is None

    def error(self) -> TrajectoryCancelled | TrajectoryTimeout:
        """Build the error that says why."""
        if self.timed_out:
            return TrajectoryTimeout(
                f"trajectory {self._key!r} was active for longer than trajectory_timeout_s={self._limit_s:g} s"
            )
        return TrajectoryCancelled(self._reason or "the batch was cancelled")
