"""How late the event loop wakes its sleepers: code that blocks it delays every trajectory at once.

Measured in wall seconds by a task that sleeps and looks at the clock. It must not run on a virtual clock: a timer that
sets itself again for ever would hide a dead-lock there.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import deque
from dataclasses import dataclass

import anyio

from agentbatch.runtime.hub import Hub

INTERVAL_S = 0.25
BLOCKED_S = 1.0
"""From this lag on the loop counts as blocked, and people are told."""
WINDOW_S = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class LoopLag:
    """By how many wall seconds the event loop woke a sleeper late, on average and at worst."""

    mean_s: float
    worst_s: float


class LagMeter:
    """Keeps what was measured, over the whole run and over the last minute.

    Args:
        hub: told once when the loop was blocked.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._count = 0
        self._sum_s = self._worst_s = 0.0
        self._recent: deque[float] = deque(maxlen=round(WINDOW_S / INTERVAL_S))

    async def run(self) -> None:
        """Measure until cancelled; returns at once where the event loop's clock is not the machine's."""
        if not keeps_wall_time():
            return
        while True:
            due = time.monotonic() + INTERVAL_S
            await anyio.sleep(INTERVAL_S)
            self.add(max(0.0, time.monotonic() - due))

    def add(self, lag_s: float) -> None:
        """Count one wake-up that came `lag_s` wall seconds late."""
        self._count += 1
        self._sum_s += lag_s
        self._worst_s = max(self._worst_s, lag_s)
        self._recent.append(lag_s)
        if lag_s > BLOCKED_S:
            self._hub.notice(
                "loop-blocked",
                f"the event loop was blocked for {lag_s:.1f} s, and every trajectory with it: code that neither awaits "
                "nor runs in a thread; give such calls to traj.act(), or run the harness with map_sync",
                once=True,
                details={"lag_s": lag_s},
            )

    @property
    def overall(self) -> LoopLag | None:
        """Over the whole run; None where nothing was measured."""
        return LoopLag(mean_s=self._sum_s / self._count, worst_s=self._worst_s) if self._count else None

    @property
    def last_minute(self) -> LoopLag | None:
        """Over the last minute of wake-ups; None where nothing was measured."""
        recent = self._recent
        return LoopLag(mean_s=sum(recent) / len(recent), worst_s=max(recent)) if recent else None


def keeps_wall_time() -> bool:
    """Tell whether the running event loop sleeps by the machine's clock."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        import trio  # noqa: PLC0415 - it is the running loop's library

        clock = trio.lowlevel.current_clock()
        # how long trio would really sleep for one second of its clock
        return abs(clock.deadline_to_sleep_time(clock.current_time() + 1.0) - 1.0) < 0.1
    # asyncio's own, or one in C (uvloop): a loop that tells the time in Python keeps a time of its own
    clock_of = type(loop).time
    own = clock_of is asyncio.BaseEventLoop.time or not inspect.isfunction(clock_of)
    return own and "time" not in getattr(loop, "__dict__", {})
