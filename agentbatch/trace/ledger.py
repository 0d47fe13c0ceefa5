"""A run's events sorted by kind and joined by label and turn, never by where they stand in the file (DeepSpec#29)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from agentbatch.events import (
    Admitted,
    AttemptFailed,
    ChildStarted,
    Event,
    JobEnded,
    LimitsChanged,
    Notice,
    RunEnded,
    RunStarted,
    TrajectoryEnded,
    TurnEnded,
    WorkerChanged,
    WorkloadKnown,
)


@dataclass(kw_only=True, slots=True)
class Ledger:
    """What happened in one run; times are seconds on the run's clock.

    An event that came twice is entered once and listed in `duplicates`.
    """

    started: RunStarted | None = None
    workload: WorkloadKnown | None = None
    closed: RunEnded | None = None
    """None for a run that was killed, or still runs."""
    admitted: dict[str, Admitted] = field(default_factory=dict)
    """By label."""
    ended: dict[str, TrajectoryEnded] = field(default_factory=dict)
    """By label; those never admitted are left out."""
    never_admitted: dict[str, TrajectoryEnded] = field(default_factory=dict)
    turns: list[TurnEnded] = field(default_factory=list)
    jobs: list[JobEnded] = field(default_factory=list)
    parents: dict[str, str] = field(default_factory=dict)
    """Label of the trajectory that a child belongs to, by the child's label."""
    limits: list[LimitsChanged] = field(default_factory=list)
    attempts: list[AttemptFailed] = field(default_factory=list)
    worker_changes: list[WorkerChanged] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    duplicates: list[Event] = field(default_factory=list)

    @classmethod
    def of(cls, events: Iterable[Event]) -> Ledger:
        """Enter `events`, in whatever order they come."""
        ledger = cls()
        seen: set[tuple[object, ...]] = set()
        for event in events:
            name = identity(event)
            if name is not None:
                if name in seen:
                    ledger.duplicates.append(event)
                    continue
                seen.add(name)
            ledger._enter(event)
        for label in ledger.never_admitted.keys() & ledger.admitted.keys():
            ledger.ended[label] = ledger.never_admitted.pop(label)
        return ledger

    def _enter(self, event: Event) -> None:
        match event:
            case TurnEnded():
                self.turns.append(event)
            case JobEnded():
                self.jobs.append(event)
            case Admitted():
                self.admitted[event.label] = event
            case TrajectoryEnded():
                (self.never_admitted if event.admitted_s is None else self.ended)[event.label] = event
            case ChildStarted():
                self.parents[event.label] = event.parent
            case LimitsChanged():
                self.limits.append(event)
            case AttemptFailed():
                self.attempts.append(event)
            case WorkerChanged():
                self.worker_changes.append(event)
            case Notice():
                self.notices.append(event)
            case RunStarted():
                self.started = event
            case WorkloadKnown():
                self.workload = event
            case RunEnded():
                self.closed = event

    @property
    def first_admission_s(self) -> float | None:
        """When the first trajectory was admitted; None where none was."""
        times = [event.at_s for event in self.admitted.values()]
        times += [event.admitted_s for event in self.ended.values() if event.admitted_s is not None]
        return min(times, default=None)

    def root(self, label: str) -> str:
        """Return the label of the trajectory that `label` is a child of, or `label` itself."""
        while label in self.parents:
            label = self.parents[label]
        return label

    @property
    def trajectories(self) -> int:
        """How many trajectories the run has, those that a killed run never reached included where that is known."""
        admitted = len(self.admitted.keys() | self.ended.keys())
        if self.closed is None and self.workload is not None:
            return max(admitted, self.workload.trajectories - len(self.never_admitted))
        return admitted

    @property
    def unfinished(self) -> int:
        """How many trajectories never ended, because the run was killed or still runs."""
        return self.trajectories - len(self.ended)

    @property
    def end_s(self) -> float | None:
        """When the last trajectory ended or, where some have not, the time of the last event; None for an empty run."""
        if self.first_admission_s is None:
            return None
        return max(self._times() if self.unfinished else (event.at_s for event in self.ended.values()))

    def _times(self) -> Iterator[float]:
        counted = (self.ended.values(), self.attempts, self.limits, self.notices, self.worker_changes)
        for group in (self.admitted.values(), *counted):
            yield from (event.at_s for event in group)
        for spans in (self.turns, self.jobs):
            yield from (event.ended_s for event in spans)
        if self.closed is not None:
            yield self.closed.at_s


def identity(event: Event) -> tuple[object, ...] | None:
    """Return what no two different events of one run share; None where two may well be equal."""
    match event:
        case TurnEnded():
            return event.event, event.label, event.turn, event.started_s
        case AttemptFailed():
            return event.event, event.label, event.turn, event.attempt, event.at_s
        case WorkerChanged():
            return event.event, event.worker, event.live, event.at_s
        case Admitted() | ChildStarted() | TrajectoryEnded():
            return event.event, event.label
        case RunStarted() | WorkloadKnown() | RunEnded():
            return (event.event,)
        case JobEnded() | LimitsChanged() | Notice():
            return None
