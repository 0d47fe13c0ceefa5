"""Which waiting trajectory is admitted next: as submitted (spec §2), or the longest expected first.

Longest first is not in the paper and never the default: it needs a profile, the seconds that tasks of the same key took
before. A long chain admitted last runs on alone; scheduled longest first (LPT; R. L. Graham, "Bounds on Multiprocessing
Timing Anomalies", SIAM J. Appl. Math. 17(2), 1969) short ones fill up the end.

Lives here: the keys. Must not live here: the queue (`slots.py`), reading a profile (`trace/profile.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

Admission = Literal["fifo", "longest-first"]


@dataclass(frozen=True, slots=True)
class AdmissionOrder:
    """The order of admission, as configured once per batch.

    Args:
        admission: "fifo", in submission order, or "longest-first".
        profile: expected seconds by task key, each finite and >= 0, at least one; for "longest-first" alone.

    Raises:
        ValueError: an unknown order, longest first without a profile, a profile without it, or one that is empty or
            holds a number out of range.
    """

    admission: Admission = "fifo"
    profile: Mapping[str, float] | None = None
    unknown_s: float = field(init=False, default=0.0)
    """What a key that the profile does not know is taken for: the profile's median."""

    def __post_init__(self) -> None:
        if self.admission not in get_args(Admission):
            raise ValueError(f"unknown admission order {self.admission!r}: choose 'fifo' or 'longest-first'")
        if self.profile is None:
            if self.admission == "longest-first":
                raise ValueError(
                    "longest-first needs a profile: the seconds each task took before, by its key, from an earlier "
                    "run's record or a trace"
                )
            return
        if self.admission == "fifo":
            raise ValueError("a profile is of no use to 'fifo': choose 'longest-first', or leave the profile out")
        if not self.profile:
            raise ValueError("the profile is empty: it needs the seconds of at least one task key")
        for key, seconds in self.profile.items():
            number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
            if not number or not 0 <= seconds <= sys.float_info.max:  # a larger int is no float
                raise ValueError(f"the profile's seconds must be finite and 0 or more, not {seconds!r} for {key!r}")
        object.__setattr__(self, "unknown_s", median(self.profile.values()))

    def expected_s(self, task_key: str) -> float:
        """Return how long a task is expected to take, seconds; 0.0 without a profile."""
        return self.unknown_s if self.profile is None else self.profile.get(task_key, self.unknown_s)

    def key(self, task_key: str, entry: int) -> tuple[float, int]:
        """Return a trajectory's place in the queue, smallest first: (-expected seconds, e).

        Args:
            task_key: the task's own.
            entry: e, number of the submission, increasing; decides between equals, and alone under "fifo".
        """
        return -self.expected_s(task_key), entry

    def unknown(self, task_keys: Iterable[str]) -> int:
        """Return how many of the keys the profile does not know; 0 without one."""
        profile = self.profile
        return 0 if profile is None else sum(key not in profile for key in task_keys)


def median(values: Iterable[float]) -> float:
    """Return the middle value; of an even number, the mean of the middle two.

    Raises:
        ValueError: there is none.
    """
    ordered = sorted(values)
    if not ordered:
        raise ValueError("the median of nothing is not defined")
    half = len(ordered) // 2
    # half of each first: the sum of two finite numbers need not be finite
    return float(ordered[half]) if len(ordered) % 2 else ordered[half - 1] / 2 + ordered[half] / 2
