"""A live display of a batch of one's own: what runs, what waits, and which limit binds, on stderr."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.live import Live
from rich.text import Text

from agentbatch.events import Event
from agentbatch.report.console import stderr
from agentbatch.runtime.batch import AgentBatch
from agentbatch.runtime.statistics import BatchStatistics
from agentbatch.runtime.sync_batch import SyncAgentBatch

REFRESH_S = 0.25
"""How often the display changes at most, wall seconds."""
LAG_SHOWN_S = 0.1
"""From this lag on the event loop is mentioned: it delays everybody."""


@contextmanager
def live(batch: AgentBatch | SyncAgentBatch, *, total: int | None = None) -> Iterator[None]:
    """Show a running batch until the block ends: `with live(batch, total=9):` inside the batch's `async with`.

    Shows nothing where stderr is no terminal. Drawn when something happens in the batch, four times a second at most.

    Args:
        batch: the batch, inside its `async with`.
        total: how many trajectories there will be, where that is known.
    """
    console = stderr()
    if not console.is_terminal:
        yield
        return
    with Live(console=console, refresh_per_second=1 / REFRESH_S) as display:
        due_s = 0.0

        def draw(event: Event | None = None) -> None:
            nonlocal due_s
            now_s = time.monotonic()
            if event is None or now_s >= due_s:
                due_s = now_s + REFRESH_S
                display.update(Text(lines(batch.statistics(), total)))

        draw()
        try:
            with batch.listen(draw):
                yield
        finally:
            draw()


def lines(now: BatchStatistics, total: int | None = None) -> str:
    """Return what the display shows: one line of counts, one that says what binds."""
    ended = now.trajectories_completed + now.trajectories_failed
    parts = [
        f"{ended}/{total} ended" if total is not None else f"{ended} ended",
        f"CS {now.admission.held}/{now.admission.capacity}",
        f"{now.turns_in_flight} in flight",
    ]
    for name, slots in now.environment.items():
        waiting = f" +{slots.waiting} waiting" if slots.waiting else ""
        parts.append(f"CE {name} {slots.held}/{slots.capacity}{waiting}")
    lag = now.loop_lag_last_minute
    if lag is not None and lag.worst_s >= LAG_SHOWN_S:
        parts.append(f"loop {lag.worst_s:.1f} s late")
    return "  ".join(parts) + f"\n{now.bottleneck.sentence}"
