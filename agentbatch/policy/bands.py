"""Bands of asking time that are as wide as the queue is long: B of Eq. 13 where it is "auto"; not in the paper.

Where jobs wait for minutes, hardly two that wait at once asked in the same 30 s, and CAAS comes down to first come,
first served. So a band opens as wide as jobs have waited of late.

The mean wait, not the median: by Little's law it is queue length / rate of grants, whatever the order of the queue, as
long as that does not look at how long jobs take. Deepest chain first makes many waits short and a few very long: a
median would shrink with every job that overtakes, narrow the bands and so undo the order that it measures. Of the last
64 grants, since the queue of a batch grows at its start and runs dry at its end. Neither choice decides much: in event
simulations of two recorded workloads the median, or all grants, changed the mean makespan by less than 1 %.

Keys are fixed at entry, so bands cannot be drawn anew: they lie end to end from 0, and each ends at its start + the B
in force when the first job asked at or after that start. Exact rational arithmetic, as in `caas.py`: with a B that
never changes, these are the bands of Eq. 13.
"""

from __future__ import annotations

import math
from collections import deque
from fractions import Fraction

GRANTS = 64
"""How many grants B looks back on."""


class FollowingBands:
    """The bands of one resource's queue, numbered 0, 1, … from the batch's first admission.

    Args:
        least_s: the narrowest band, seconds, finite and > 0.
    """

    __slots__ = ("_end", "_least_s", "_number", "_waits")

    def __init__(self, least_s: float) -> None:
        self._least_s = least_s
        self._waits: deque[float] = deque(maxlen=GRANTS)
        self._number = -1
        self._end = Fraction(0)

    @property
    def width_s(self) -> float:
        """B in force: the mean wait of the last grants, seconds, or the narrowest."""
        return max(self._least_s, math.fsum(self._waits) / len(self._waits)) if self._waits else self._least_s

    def waited(self, wait_s: float) -> None:
        """Take note of a grant after `wait_s` seconds, finite and >= 0.

        Raises:
            ValueError: it is neither.
        """
        if not 0.0 <= wait_s < math.inf:
            raise ValueError(f"a wait must be finite and 0 or more seconds, not {wait_s!r}")
        self._waits.append(wait_s)

    def number(self, asked_s: float) -> int:
        """Return the number of the band of a job that asks at `asked_s`, seconds since the first admission.

        Jobs are named as they ask: the number never falls. One that asked before the band now open began is in that.

        Raises:
            ValueError, OverflowError: `asked_s` is not a number, or infinite.
        """
        late = Fraction(asked_s) - self._end
        if late >= 0:
            width = Fraction(self.width_s)
            passed = 1 + late // width  # bands in which nobody asked are passed over, all as wide as this one
            self._number += passed
            self._end += passed * width
        return max(self._number, 0)

    def __repr__(self) -> str:
        return f"<FollowingBands {self._number} until {float(self._end):g} s, B={self.width_s:g} s>"
