"""A live line per replay: trajectories ended, turns and environment jobs done, trace time."""

from __future__ import annotations

from types import TracebackType

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from agentbatch.events import Event, JobEnded, TrajectoryEnded, TurnEnded
from agentbatch.report.console import stderr


class ReplayProgress:
    """Shows replays one below the other; a context manager whose `hook()` gives each replay its line.

    Args:
        quiet: show nothing, as for tests.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("trajectories  {task.fields[turns]:>5} turns  {task.fields[jobs]:>5} jobs"),
            TextColumn("{task.fields[at_s]:>7.0f} s trace"),
            TimeElapsedColumn(),
            console=stderr(),
            disable=quiet,
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
        self._task = progress.add_task(title, total=total, turns=0, jobs=0, at_s=0.0)

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
        self._progress.update(self._task, turns=self._turns, jobs=self._jobs, at_s=at_s)
