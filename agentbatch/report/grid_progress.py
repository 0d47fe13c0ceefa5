"""A bar for simulations: trajectories ended and runs done, 80 columns; only for what takes longer than two seconds."""

from __future__ import annotations

import time
from types import TracebackType

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from agentbatch.report.console import stderr

PATIENCE_S = 2.0
"""Wall seconds after which people want to see that something happens."""


class GridProgress:
    """Shows how far `runs` runs of `trajectories` each are; nothing where stderr is no terminal.

    A context manager; call `advance` now and then, also where nothing has ended.
    """

    def __init__(self, runs: int, trajectories: int) -> None:
        console = stderr()
        self._progress = Progress(
            TextColumn("simulating"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[done]}/{task.fields[runs]} runs", markup=False),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
            refresh_per_second=4,
            transient=True,
        )
        self._task = self._progress.add_task("", total=runs * trajectories, done=0, runs=runs)
        self._due_s = time.monotonic() + PATIENCE_S
        self._done = 0
        self.shown = False

    def advance(self, ended: int) -> None:
        """Count `ended` more trajectories."""
        if ended:
            self._progress.advance(self._task, ended)
        if not self.shown and time.monotonic() >= self._due_s:
            self.shown = True
            self._progress.start()

    def run_done(self) -> None:
        """Count one more run."""
        self._done += 1
        self._progress.update(self._task, done=self._done)

    def __enter__(self) -> GridProgress:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self.shown:
            self._progress.stop()
