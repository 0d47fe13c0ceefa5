"""CAAS: which pending environment job runs next when a slot frees (spec §2, paper §4, Eq. 13-16).

Jobs that asked in the same band of time go deepest chain first, and among equally deep ones the chain with
the quicker model turns first. Only what this run has shown goes in: no prediction, no profile. First come,
first served is here too, as the paper's ablation, and three things beyond the paper, none of them a default: "depth"
(deepest chain first, in wide bands), "slow-step" (longest mean step first) and bands that follow the wait
(`bands.py`).

Lives here: the keys. Must not live here: the queue (`slots.py`), a clock; times come in as seconds.

Floats. Every floor is taken on whole numbers: a float is a ratio of two integers (`as_integer_ratio`), so
Eq. 13 and 15 are exact for the floats given. `floor(a / b)` on floats is not, since the division may round up
to the next whole number, and neither is `(total / n) / bucket`. What stays is the rounding already in the
inputs: 0.1 + 0.2 is a little more than 0.3, and a duration measured as `end - start` may miss a bucket's edge
by 1e-16. Two programs that must agree on keys have to compute durations the same way.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Literal, get_args

from agentbatch.policy.bands import FollowingBands

EnvironmentPolicy = Literal["caas", "fcfs", "depth", "slow-step"]

Band = float | Literal["auto"]
"""B of Eq. 13, seconds; "auto" follows the wait of the queue."""

BAND_S = 30.0
"""B of CAAS where none is given, seconds; with "auto" its narrowest."""
DEPTH_BAND_S = 300.0
"""The narrowest band of "depth" with "auto", seconds."""
BUCKET_S = 1.0
"""ΔI of Eq. 15, seconds."""

PRIOR_STEPS = 2
PRIOR_STEP_S = 15.0
"""What "slow-step" takes a chain to have shown before it has: so many steps, turn and stage together, of so long."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What one trajectory has shown so far: its completed inference turns, and what its environment stages took.

    A child trajectory starts from its parent's progress and adds its own turns; it is frozen, so that these
    never change the parent's (spec §2).

    Args:
        turns: n of Eq. 14, completed inference turns, >= 0; a turn that failed for good does not count.
        turn_seconds: their durations added up, seconds, finite and >= 0.
        environment_seconds: seconds that its environment jobs held their slots, added up, finite and >= 0; only
            "slow-step" looks at it.

    Raises:
        ValueError: a number out of range.
    """

    turns: int = 0
    turn_seconds: float = 0.0
    environment_seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.turns < 0:
            raise ValueError(f"turns must be 0 or more, not {self.turns!r}")
        if not 0.0 <= self.turn_seconds < math.inf:
            raise ValueError(f"turn_seconds must be finite and 0 or more, not {self.turn_seconds!r}")
        if not 0.0 <= self.environment_seconds < math.inf:
            raise ValueError(f"environment_seconds must be finite and 0 or more, not {self.environment_seconds!r}")

    def completed(self, seconds: float) -> Progress:
        """Return the progress after one more turn.

        Args:
            seconds: τ of the turn, from client launch to its last byte, retries and back-off included; >= 0.

        Raises:
            ValueError: `seconds` is negative or not finite.
        """
        if not 0.0 <= seconds < math.inf:
            raise ValueError(f"a turn's duration must be finite and 0 or more seconds, not {seconds!r}")
        return Progress(self.turns + 1, self.turn_seconds + seconds, self.environment_seconds)

    def acted(self, seconds: float) -> Progress:
        """Return the progress after one more environment job.

        Args:
            seconds: how long it held its slot, from the grant to its end, however it ended; >= 0.

        Raises:
            ValueError: `seconds` is negative or not finite.
        """
        if not 0.0 <= seconds < math.inf:
            raise ValueError(f"a job's duration must be finite and 0 or more seconds, not {seconds!r}")
        return Progress(self.turns, self.turn_seconds, self.environment_seconds + seconds)

    @property
    def mean(self) -> float:
        """Mean duration of the completed turns, seconds; 0.0 before the first."""
        return self.turn_seconds / self.turns if self.turns else 0.0


def band_of(asked_s: float, band_s: float) -> int:
    """Return g = floor(a / B) of Eq. 13, exactly; arguments as for `caas_key`."""
    asked, asked_parts = asked_s.as_integer_ratio()
    band, band_parts = band_s.as_integer_ratio()
    return asked * band_parts // (asked_parts * band)


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
    return banded_key(band_of(asked_s, band_s), progress, entry, bucket_s)


def banded_key(band: int, progress: Progress, entry: int, bucket_s: float) -> tuple[int, int, int, int]:
    """Return the key (g, -n, c, e) of a job whose band g is known; other arguments as for `caas_key`."""
    n = progress.turns
    if n == 0:
        return band, 0, 0, entry
    total, total_parts = progress.turn_seconds.as_integer_ratio()
    bucket, bucket_parts = bucket_s.as_integer_ratio()
    return band, -n, total * bucket_parts // (total_parts * n * bucket), entry


def fcfs_key(entry: int) -> tuple[int]:
    """Return the key of first come, first served: the entry number alone."""
    return (entry,)


def depth_key(band: int, progress: Progress, entry: int) -> tuple[int, int, int]:
    """Return the key (g, -n, e) of deepest chain first: CAAS with one endless bucket, in bands as wide as may be.

    Without bands a shallow chain waits for as long as deeper ones keep asking.
    """
    return band, -progress.turns, entry


def slow_step_key(progress: Progress, entry: int) -> tuple[float, int]:
    """Return the key of longest mean step first, (-(2 · 15 s + ΣI + ΣE) / (2 + n), e); experimental.

    ΣI and ΣE are the chain's own inference and environment seconds so far. The two steps of 15 s beforehand keep a
    chain's first steps from deciding all; the order depends on them.
    """
    shown_s = PRIOR_STEPS * PRIOR_STEP_S + progress.turn_seconds + progress.environment_seconds
    return -shown_s / (PRIOR_STEPS + progress.turns), entry


@dataclass(frozen=True, slots=True)
class EnvironmentOrder:
    """The order of environment jobs, as configured once per batch; `keys` makes what one resource's queue uses.

    Args:
        policy: "caas" (Eq. 16), "fcfs", or beyond the paper "depth" and, experimental, "slow-step".
        band_s: B of Eq. 13, seconds, finite and > 0; "auto" follows the wait of the queue (`FollowingBands`), never
            narrower than `BAND_S`, or for "depth" `DEPTH_BAND_S`. None is `BAND_S` for "caas" and "auto" for "depth";
            the others have no bands. With "depth" a B beyond the batch's length is deepest first, whenever it asked.
        bucket_s: ΔI of Eq. 15, seconds, finite and > 0.

    Raises:
        ValueError: an unknown policy, or a width that is not finite and above 0.
    """

    policy: EnvironmentPolicy = "caas"
    band_s: Band | None = None
    bucket_s: float = BUCKET_S

    def __post_init__(self) -> None:
        if self.policy not in get_args(EnvironmentPolicy):
            raise ValueError(f"unknown environment policy {self.policy!r}: choose {environment_policies()}")
        for name, width in (("band_s", self.band_s), ("bucket_s", self.bucket_s)):
            if name == "band_s" and width in ("auto", None):
                continue
            if isinstance(width, bool) or not isinstance(width, int | float) or not 0.0 < width <= sys.float_info.max:
                or_auto = " or 'auto'" if name == "band_s" else ""
                raise ValueError(f"{name} must be a finite number of seconds above 0{or_auto}, not {width!r}")

    @property
    def band_in_force(self) -> Band | None:
        """B as this order uses it; None where its policy has no bands."""
        if self.policy not in ("caas", "depth"):
            return None
        if self.band_s is None:
            return BAND_S if self.policy == "caas" else "auto"
        return self.band_s

    def keys(self) -> EnvironmentKeys:
        """Return the maker of keys for one resource's queue, from the start of a batch."""
        return EnvironmentKeys(self)


class EnvironmentKeys:
    """Makes the keys of the jobs that join one resource's queue, in the order in which they join.

    With bands that follow the wait it remembers the queue's recent waits and its open band; otherwise nothing. The
    caller makes a key, asks the queue with it, then tells `granted`: at once where a slot was free, or when the job
    gets one.
    """

    __slots__ = ("_band_s", "_bands", "order")

    def __init__(self, order: EnvironmentOrder) -> None:
        self.order = order
        band = order.band_in_force
        self._bands = FollowingBands(BAND_S if order.policy == "caas" else DEPTH_BAND_S) if band == "auto" else None
        self._band_s = 0.0 if band is None or band == "auto" else float(band)

    def key(self, progress: Progress, asked_s: float, entry: int) -> tuple[float, ...]:
        """Return the key of a job that joins now, fixed from here on; see `caas_key` for the arguments.

        Keys of one object are comparable with one another and all different, since `entry` is.
        """
        order = self.order
        if order.policy == "fcfs":
            return fcfs_key(entry)
        if order.policy == "slow-step":
            return slow_step_key(progress, entry)
        band = band_of(asked_s, self._band_s) if self._bands is None else self._bands.number(asked_s)
        if order.policy == "depth":
            return depth_key(band, progress, entry)
        return banded_key(band, progress, entry, order.bucket_s)

    def granted(self, wait_s: float) -> None:
        """Take note that a job of this resource got its slot, after `wait_s` seconds; 0 where it did not wait.

        Raises:
            ValueError: `wait_s` is negative or not finite.
        """
        if self._bands is not None:
            self._bands.waited(wait_s)

    def __repr__(self) -> str:
        return f"<EnvironmentKeys {self.order.policy} band_s={self._bands or self.order.band_in_force!r}>"


def environment_policies() -> str:
    """Return the names of the policies, for messages: 'caas', 'fcfs', 'depth' or 'slow-step'."""
    *names, last = map(repr, get_args(EnvironmentPolicy))
    return f"{', '.join(names)} or {last}"
