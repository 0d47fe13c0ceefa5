"""Chain-Advancing Action Scheduling: the order in which waiting environment jobs run (spec §2, Eq. 13-16)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Policy = Literal["caas", "fcfs"]


@dataclass(frozen=True, slots=True)
class Progress:
    """What a trajectory has shown so far: `turns` completed (n) and the seconds they took in all."""

    turns: int = 0
    turn_seconds: float = 0.0

    def completed(self, seconds: float) -> Progress:
        """Return the progress after one more completed turn of `seconds`."""
        return Progress(self.turns + 1, self.turn_seconds + seconds)

    @property
    def mean_turn_s(self) -> float:
        """Mean duration of the completed turns in seconds; 0 before the first."""
        return self.turn_seconds / self.turns if self.turns else 0.0


def caas_key(
    progress: Progress, asked_s: float, entry: int, band_s: float = 30.0, bucket_s: float = 1.0
) -> tuple[int, int, int, int]:
    """Return the key (g, -n, c, e) of Eq. 16; the smallest runs first.

    Args:
        progress: completed turns of the job's trajectory, the one that produced the job included.
        asked_s: a_j, when the job asked for a slot, seconds since the batch's first admission.
        entry: e_j, global and increasing.
        band_s: B of Eq. 13, seconds.
        bucket_s: dI of Eq. 15, seconds.
    """
    return (
        math.floor(asked_s / band_s),
        -progress.turns,
        math.floor(progress.mean_turn_s / bucket_s),
        entry,
    )


def fcfs_key(entry: int) -> tuple[int]:
    """Return the key of first come, first served: the entry number alone."""
    return (entry,)


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentOrder:
    """How waiting environment jobs are ordered.

    Args:
        policy: "caas" or its ablation "fcfs".
        band_s: B, seconds, > 0; small is close to FCFS, large to deepest chain first.
        bucket_s: dI, seconds, > 0.

    Raises:
        ValueError: an unknown policy, or a length that is not positive and finite.
    """

    policy: Policy = "caas"
    band_s: float = 30.0
    bucket_s: float = 1.0

    def __post_init__(self) -> None:
        if self.policy not in ("caas", "fcfs"):
            raise ValueError(f"policy must be 'caas' or 'fcfs', not {self.policy!r}")
        for name, value in (("band_s", self.band_s), ("bucket_s", self.bucket_s)):
            if not 0 < value < math.inf:
                raise ValueError(f"{name} must be a positive number of seconds, not {value!r}")

    def key(self, progress: Progress, asked_s: float, entry: int) -> tuple[int, ...]:
        """Return the fixed key of a job that asks at `asked_s` as entry number `entry`."""
        if self.policy == "fcfs":
            return fcfs_key(entry)
        return caas_key(progress, asked_s, entry, self.band_s, self.bucket_s)
