"""A live line per replay: trajectories ended, turns and environment jobs done, trace time, what binds; 80 columns."""

from __future__ import annotations

import time
from types import TracebackType

from rich.progress import BarColumn, Progress, TextColumn

from agentbatch.events import Event, JobEnded, TrajectoryEnded, TurnEnded
from agentbatch.policy.bottleneck import Bottleneck
from agentbatch.report.console import stderr
from agentbatch.runtime import current

TITLE_CHARS = 11
BINDS_CHARS = 15
REFRESH_S = 0.25
"""How often what binds is looked up at most, wall seconds."""


class ReplayProgress:
    """Shows replays one below the other; a context manager whose `hook()` gives each replay its line.

    Shows nothing where stderr is no terminal.
    """

    def __init__(self) -> None:
        console = stderr()
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=6),
            TextColumn("{task.completed:>4}/{task.total} done", markup=False),
            TextColumn("{task.fields[turns]:>5} turns", markup=False),
            TextColumn("{task.fields[jobs]:>5} jobs", markup=False),
            TextColumn("{task.fields[at_s]:>6.0f} s", markup=False),
            TextColumn("{task.fields[binds]}", markup=False),
            console=console,
            disable=not console.is_terminal,
            refresh_per_second=4,
        )

    def hook(self, title: str, total: int) -> ReplayHook:
        """Start a line called `title` for `total` trajectories; returns the event hook that moves it."""
        return ReplayHook(self._progress, title, total)

    def __enter__(self) -> ReplayProgress:
        self._progress.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._progress.stop()


class ReplayHook:
    """Counts one replay's events on its line."""

    def __init__(self, progress: Progress, title: str, total: int) -> None:
        self._progress = progress
        self._turns = self._jobs = 0
        self._due_s = 0.0
        self._binds = ""
        name = f"{title[:TITLE_CHARS]:<{TITLE_CHARS}}"
        self._task = progress.add_task(name, total=total, turns=0, jobs=0, at_s=0.0, binds="")

    def __call__(self, event: Event) -> None:
        """Take one event in."""
        if isinstance(event, TurnEnded):
            self._turns += 1
            self._update(event.ended_s)
        elif isinstance(event, JobEnded):
            self._jobs += 1
        elif isinstance(event, TrajectoryEnded):
            self._progress.advance(self._task)
            self._update(event.at_s)

    def _update(self, at_s: float) -> None:
        now_s = time.monotonic()
        batch = current.batch.get()  # events come from inside the batch that they belong to
        if batch is not None and not self._progress.disable and now_s >= self._due_s:
            self._due_s = now_s + REFRESH_S
            self._binds = _in_short(batch.statistics().bottleneck)
        self._progress.update(self._task, turns=self._turns, jobs=self._jobs, at_s=at_s, binds=self._binds)


def _in_short(bottleneck: Bottleneck) -> str:
    """Return the verdict in `BINDS_CHARS` at most; what has to go goes from the resource's name."""
    name, short = bottleneck.resource or "", bottleneck.short
    left = len(name) - max(0, len(short) - BINDS_CHARS)
    return short.replace(name, name[:left], 1) if name else short
