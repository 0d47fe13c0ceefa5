"""What a trajectory leaves behind: its value or error, its times and its tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """Where a trajectory's time went, in (trace) seconds; parallel turns or jobs add up separately."""

    submitted_s: float
    admitted_s: float | None
    ended_s: float
    inference_s: float = 0.0
    environment_s: float = 0.0
    environment_wait_s: float = 0.0

    @property
    def admission_wait_s(self) -> float:
        """Seconds between submission and admission (or the end, when never admitted)."""
        return (self.ended_s if self.admitted_s is None else self.admitted_s) - self.submitted_s

    @property
    def active_s(self) -> float:
        """Seconds the admission slot was held."""
        return 0.0 if self.admitted_s is None else self.ended_s - self.admitted_s


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Tokens as the server reported them; turns whose usage is unknown add nothing and are counted."""

    turns: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    turns_without_usage: int = 0
    environment_jobs: int = 0
    attempts_failed: int = 0
    timeouts: int = 0
    """Turns and jobs that a time-out ended, and the trajectory's own; any of them may have moved a score."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Completed(Generic[T_co]):
    """A task that returned."""

    key: str
    label: str
    value: T_co
    timing: Timing
    usage: Usage = field(default_factory=Usage)
    ok: Literal[True] = True

    @property
    def timed_out(self) -> bool:
        """Whether a time-out ended any part of it, which may have moved its score."""
        return self.usage.timeouts > 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Failed:
    """A task that raised or was cancelled; `error` is what it raised, traceback included."""

    key: str
    label: str
    error: BaseException
    timing: Timing
    usage: Usage = field(default_factory=Usage)
    ok: Literal[False] = False

    @property
    def timed_out(self) -> bool:
        """Whether a time-out ended it, or any part of it."""
        return self.usage.timeouts > 0


Result = Completed[T_co] | Failed
