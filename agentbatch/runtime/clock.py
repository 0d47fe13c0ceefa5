"""The batch's clock: seconds since the first admission, in trace seconds when a replay is sped up (spec §7)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import anyio

from agentbatch.errors import UsageError
from agentbatch.runtime.checks import is_number


def backend_time() -> Callable[[], float]:
    """Return the running event loop's monotonic clock, wall seconds; follows a virtual clock where one runs.

    Other threads may read it too, and it is ten times cheaper than anyio's look-up on each call.
    """
    try:
        return asyncio.get_running_loop().time
    except RuntimeError:
        import trio  # noqa: PLC0415 - it is the running loop's library

        return trio.lowlevel.current_clock().current_time


class BatchClock:
    """Reads trace seconds: wall seconds since the origin times the speed-up.

    Args:
        speedup: trace seconds per wall second, > 0; 1 outside replays.

    Raises:
        UsageError: the speed-up is not a positive finite number.
    """

    def __init__(self, speedup: float = 1.0) -> None:
        if not is_number(speedup) or not 0 < speedup < float("inf"):
            raise UsageError(f"speedup must be a positive number, not {speedup!r}")
        self.speedup = speedup
        self._time: Callable[[], float] = anyio.current_time
        self._origin = 0.0
        self._begun = False

    def start(self) -> None:
        """Bind to the running event loop."""
        self._time = backend_time()

    def begin(self) -> None:
        """Set the origin to the first admission (spec §2); later calls change nothing."""
        if not self._begun:
            self._begun = True
            self._origin = self._time()

    def now(self) -> float:
        """Return trace seconds since the first admission; 0 before it."""
        return (self._time() - self._origin) * self.speedup if self._begun else 0.0

    def wall(self) -> float:
        """Return the event loop's own time, wall seconds; outside its tasks too, where anyio does not know its loop."""
        return self._time()

    async def sleep(self, seconds: float) -> None:
        """Sleep for `seconds` of trace time."""
        await anyio.sleep(seconds / self.speedup)
