"""A child of a trajectory: a sub-agent, a judge or a simulated user, in its parent's admission slot (spec §2)."""

from __future__ import annotations

from agentbatch.errors import UsageError
from agentbatch.events import ChildStarted
from agentbatch.runtime.sync_trajectory import SyncTrajectory
from agentbatch.runtime.tally import Tally
from agentbatch.runtime.trajectory import Trajectory


class ChildTrajectory(Trajectory):
    """A trajectory within a trajectory: a label of its own, its parent's admission slot.

    Its chain starts from its parent's n and mean and goes on by itself. What it uses is counted in `usage`, and in its
    parent's. It ends with its parent. Without a label a judge's or sub-agent's turns would go anywhere (mecatl#543).
    """

    def __init__(self, parent: Trajectory, name: str) -> None:
        batch = parent.batch
        now_s, label = parent.clock.now(), batch.labels.child(parent.label, name)
        super().__init__(batch, f"{parent.key}/{name}", label, now_s, Tally(parent.tally))
        self.parent = parent
        self.progress = parent.progress
        self.open_streams = parent.open_streams  # closed with the parent
        self.place = parent.place  # its turns and jobs are where the parent's time goes
        self.sync = SyncTrajectory(self, parent.sync)
        self._admitted_s = now_s
        batch.hub.emit(ChildStarted(at_s=now_s, label=self.label, parent=parent.label))

    @property
    def is_open(self) -> bool:
        """Whether its parent is running."""
        return self.parent.is_open

    def check_open(self) -> None:
        """Raise TrajectoryClosed, or BatchClosed, unless its parent is running."""
        self.parent.check_open()

    def cancel(self, reason: str = "cancelled by the harness") -> None:
        """Raise UsageError: a child has no task of its own to cancel."""
        raise UsageError(f"{self.key!r} is a child: cancel its parent, or the task that runs it")
