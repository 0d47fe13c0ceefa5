"""What happened in a batch, as frozen records: the one vocabulary of recorder, progress, metrics and hooks.

Times end in `_s` and are seconds since the batch's first admission (trace seconds in a replay, spec §7); an event
before the first admission carries 0. Counts of tokens are `None` where the server did not tell.
Text of prompts and replies never appears here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

SCHEMA = 1
"""Version of the event records; a reader refuses a newer one."""

Outcome = Literal["ok", "failed", "cancelled", "overrun"]
"""How something ended; "overrun" is a job that was told to stop and ran on, so that its slot came back late."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunStarted:
    """First event of a run: what was asked for."""

    event: ClassVar[str] = "run"
    run: str
    version: str
    started_unix_s: float | None
    """None for a simulated run, which has no date."""
    cs: int
    ce: Mapping[str, int]
    unified: bool = False
    env_policy: str = "caas"
    band_s: float | Literal["auto"] | None = 30.0
    """As it was in force: "auto" followed the waits, None is a policy without bands."""
    bucket_s: float = 1.0
    speedup: float = 1.0
    workers: tuple[str, ...] = ()
    routing: str = "lbch"
    alpha: float = 1.25
    admission: str = "fifo"
    schema: int = SCHEMA


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkloadKnown:
    """What a replay knows of its workload beforehand; the parts of the lower bound on makespan."""

    event: ClassVar[str] = "workload"
    source: str
    trajectories: int
    environment_s: Mapping[str, float]
    """Environment work per resource."""
    engine_s: float | None
    """Engine work at perfect reuse, summed over workers; None where no engine model is known."""
    longest_chain_s: float
    workers: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Admitted:
    """A trajectory got its admission slot."""

    event: ClassVar[str] = "admitted"
    at_s: float
    submitted_s: float
    key: str
    label: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ChildStarted:
    """A trajectory got a child (a sub-agent, a judge): turns and jobs under its own label, in the parent's slot."""

    event: ClassVar[str] = "child"
    at_s: float
    label: str
    parent: str
    """Label of the parent."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LimitsChanged:
    """`AgentBatch.resize` was called; the limits as they are from now on."""

    event: ClassVar[str] = "limits"
    at_s: float
    cs: int
    ce: Mapping[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptFailed:
    """One try of a turn failed; `retry_in_s` is the back-off before the next, None when it was the last.

    It is 0 where the turn moved to another worker at once, because its own went out.
    """

    event: ClassVar[str] = "attempt"
    at_s: float
    label: str
    turn: int
    attempt: int
    error: str
    worker: str = ""
    status: int | None = None
    retry_in_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnEnded:
    """One inference turn, from client launch to the last byte, retries and back-off included."""

    event: ClassVar[str] = "turn"
    label: str
    turn: int
    """1 for the trajectory's first; a failed turn keeps the number it would have had."""
    started_s: float
    first_byte_s: float | None
    """First byte of the body, known for streams only."""
    ended_s: float
    outcome: Outcome
    endpoint: str
    streamed: bool
    attempts: int
    worker: str = ""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    in_environment: bool = False
    """The call was made while its task held an environment slot, which idles the scarcest resource."""
    error: str | None = None
    timed_out: bool = False
    """A time-out ended it, ours or that of its connection."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobEnded:
    """One environment job, from asking for a slot to giving it back; never granted when `granted_s` is None."""

    event: ClassVar[str] = "environment"
    label: str
    resource: str
    turns: int
    """n_j of Eq. 14: turns its trajectory had completed when it asked."""
    asked_s: float
    granted_s: float | None
    ended_s: float
    outcome: Outcome
    operations: int = 1
    error: str | None = None
    timed_out: bool = False
    """A time-out ended it, ours or the tool's own; an overrun job ended later than that."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrajectoryEnded:
    """A trajectory gave its admission slot back; never admitted when `admitted_s` is None."""

    event: ClassVar[str] = "ended"
    at_s: float
    key: str
    label: str
    admitted_s: float | None
    outcome: Outcome
    turns: int
    error: str | None = None
    timed_out: bool = False
    """Its own time-out ended it; those of its turns and jobs are marked there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerChanged:
    """One of several workers went out, so that no turn is placed on it while another is live, or came back."""

    event: ClassVar[str] = "worker"
    at_s: float
    worker: str
    live: bool
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Notice:
    """Something a person should know: a limit not honoured, a label not sent, a hook that failed."""

    event: ClassVar[str] = "notice"
    at_s: float
    kind: str
    message: str
    label: str | None = None
    details: Mapping[str, str | int | float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunEnded:
    """Last event of a run that was closed in order."""

    event: ClassVar[str] = "run_ended"
    at_s: float
    wall_s: float | None
    """None for a simulated run: its seconds are nobody's."""
    outcome: Outcome
    priority_s: float | None = None
    """Wall time spent computing scheduling priorities (Table 1); None where it was not measured."""
    loop_lag_mean_s: float | None = None
    loop_lag_worst_s: float | None = None
    """By how many wall seconds the event loop woke a sleeper late; None where it was not measured."""


Event = (
    RunStarted | WorkloadKnown | Admitted | ChildStarted | LimitsChanged | AttemptFailed | TurnEnded | JobEnded
    | TrajectoryEnded | WorkerChanged | Notice | RunEnded
)
EVENT_TYPES: tuple[type[Event], ...] = (
    RunStarted, WorkloadKnown, Admitted, ChildStarted, LimitsChanged, AttemptFailed, TurnEnded, JobEnded,
    TrajectoryEnded, WorkerChanged, Notice, RunEnded,
)  # fmt: skip
