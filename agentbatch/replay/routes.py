"""Which environment resource a recorded stage takes: the one named like it, else `default`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from agentbatch.errors import UsageError
from agentbatch.trace.workload import TraceTrajectory, TraceTurn

DEFAULT = "default"

PREPARE_RESOURCE = "environment-start"
"""Takes the stage before turn 1 where `ce` names it, else `default` does."""


@dataclass(frozen=True, slots=True)
class Routes:
    """Sends every recorded stage to one of the resources of `ce`, the limits by name."""

    ce: Mapping[str, int]

    @property
    def prepare(self) -> str:
        """The resource of the stage before turn 1."""
        return PREPARE_RESOURCE if PREPARE_RESOURCE in self.ce else DEFAULT

    def of(self, turn: TraceTurn) -> str:
        """Return the resource of the stage after `turn`: the first of its names that has a limit of its own."""
        names = (turn.env_name,) if isinstance(turn.env_name, str) else turn.env_name or ()
        return next((name for name in names if name in self.ce), DEFAULT)

    def stages(self, trajectory: TraceTrajectory) -> Iterator[tuple[str, float]]:
        """Yield (resource, seconds) of every environment stage."""
        if trajectory.env_prepare_s is not None:
            yield self.prepare, trajectory.env_prepare_s
        for turn in trajectory.turns:
            if turn.env_s is not None:
                yield self.of(turn), turn.env_s

    def work_s(self, workload: Iterable[TraceTrajectory]) -> dict[str, float]:
        """Return the seconds of environment work of each resource that has any."""
        work: dict[str, float] = {}
        for trajectory in workload:
            for resource, seconds in self.stages(trajectory):
                work[resource] = work.get(resource, 0.0) + seconds
        return work

    def check(self, workload: Iterable[TraceTrajectory]) -> list[str]:
        """Return the resources that no stage takes.

        Raises:
            UsageError: some stage has no resource to take.
        """
        used = self.work_s(workload).keys()
        if DEFAULT in used and DEFAULT not in self.ce:
            names = ", ".join(map(repr, self.ce))
            raise UsageError(f"some environment stages do not belong to {names}: add a limit for them, default=N")
        return [name for name in self.ce if name not in used and name != DEFAULT]
