"""CAAS: which pending environment job runs next when a slot frees (spec §2, paper §4, Eq. 13-16).

Jobs that asked in the same band of time go deepest chain first, and among equally deep ones the chain with
the quicker model turns first. Only what this run has shown goes in: no prediction, no profile. First come,
first served is here too, as the paper's ablation.

Lives here: the key. Must not live here: the queue (`slots.py`), a clock; times come in as seconds.

Floats. Every floor is taken on whole numbers: a float is a ratio of two integers (`as_integer_ratio`), so
Eq. 13 and 15 are exact for the floats given. `floor(a / b)` on floats is not, since the division may round up
to the next whole number, and neither is `(total / n) / bucket`. What stays is the rounding already in the
inputs: 0.1 + 0.2 is a little more than 0.3, and a duration measured as `end - start` may miss a bucket's edge
by 1e-16. Two programs that must agree on keys have to compute durations the same way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

EnvironmentPolicy = Literal["caas", "fcfs"]

BAND_S = 30.0
"""B of Eq. 13, seconds."""
BUCKET_S = 1.0
"""ΔI of Eq. 15, seconds."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What one trajectory has shown so far: its completed inference turns.

    A child trajectory starts from its parent's progress and adds its own turns; it is frozen, so that these
    never change the parent's (spec §2).

    Args:
        turns: n of Eq. 14, completed inference turns, >= 0; a turn that failed for good does not count.
        turn_seconds: their durations added up, seconds, finite and >= 0.

    Raises:
        ValueError: a number out of range.
    """

    turns: int = 0
    turn_seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.turns < 0:
            raise ValueError(f"turns must be 0 or more, not {self.turns!r}")
        if not 0.0 <= self.turn_seconds < math.inf:
            raise ValueError(f"turn_seconds must be finite and 0 or more, not {self.turn_seconds!r}")

    def completed(self, seconds: float) -> Progress:
        """Return the progress after one more turn.

        Args:
            seconds: τ of the turn, from client launch to its last byte, retries and back-off included; >= 0.

        Raises:
            ValueError: `seconds` is negative or not finite.
        """
        if not 0.0 <= seconds < math.inf:
            raise ValueError(f"a turn's duration must be finite and 0 or more seconds, not {seconds!r}")
        return Progress(self.turns + 1, self.turn_seconds + seconds)

    @property
    def mean(self) -> float:
        """Mean duration of the completed turns, seconds; 0.0 before the first."""
        return self.turn_seconds / self.turns if self.turns else 0.0


def caas_key(
    progress: Progress, asked_s: float, entry: int, band_s: float = BAND_S, bucket_s: float = BUCKET_S
) -> tuple[int, int, int, int]:
    """Return the key (g, -n, c, e) of an environment job, smallest first (Eq. 13-16).

    Args:
        progress: the trajectory's turns so far, the one that produced the job included.
        asked_s: a, when the job asked for a slot, seconds since the batch's first admission; finite, negative
            for a job before it.
        entry: e, number of the job among all that ever asked, increasing.
        band_s: B, width of a band of asking times, seconds; finite and > 0. Small: close to first come, first
            served. Large: deepest chain first.
        bucket_s: ΔI, width of a bucket of mean turn durations, seconds; finite and > 0.

    Raises:
        ValueError, OverflowError: `asked_s` is not a number, or infinite.
        ZeroDivisionError: a width is 0; `EnvironmentOrder` checks both beforehand.
    """
    asked, asked_parts = asked_s.as_integer_ratio()
    band, band_parts = band_s.as_integer_ratio()
    g = asked * band_parts // (asked_parts * band)
    n = progress.turns
    if n == 0:
        return g, 0, 0, entry
    total, total_parts = progress.turn_seconds.as_integer_ratio()
    bucket, bucket_parts = bucket_s.as_integer_ratio()
    return g, -n, total * bucket_parts // (total_parts * n * bucket), entry


def fcfs_key(entry: int) -> tuple[int]:
    """Return the key of first come, first served: the entry number alone."""
    return (entry,)


@dataclass(frozen=True, slots=True)
class EnvironmentOrder:
    """The order of environment jobs, as configured once per batch.

    Args:
        policy: "caas" (Eq. 16) or "fcfs".
        band_s: B of Eq. 13, seconds, finite and > 0.
        bucket_s: ΔI of Eq. 15, seconds, finite and > 0.

    Raises:
        ValueError: an unknown policy, or a width that is not finite and above 0.
    """

    policy: EnvironmentPolicy = "caas"
    band_s: float = BAND_S
    bucket_s: float = BUCKET_S

    def __post_init__(self) -> None:
        if self.policy not in ("caas", "fcfs"):
            raise ValueError(f"unknown environment policy {self.policy!r}: choose 'caas' or 'fcfs'")
        for name, width in (("band_s", self.band_s), ("bucket_s", self.bucket_s)):
            if isinstance(width, bool) or not 0.0 < width < math.inf:
                raise ValueError(f"{name} must be a finite number of seconds above 0, not {width!r}")

    def key(self, progress: Progress, asked_s: float, entry: int) -> tuple[int, ...]:
        """Return the job's key under this order; see `caas_key` for the arguments."""
        if self.policy == "fcfs":
            return fcfs_key(entry)
        return caas_key(progress, asked_s, entry, self.band_s, self.bucket_s)
