"""How much turns slow down as more are in flight: a regression that forgets.

Lives here: the estimate, from one pair of sums a turn. Must not live here: what follows from it (`bottleneck.py`).

Ordinary least squares of log(seconds) on log(mean requests in flight during the turn) and log(1 + output tokens), each
turn weighing `KEEP` times the next one. The slope of the first is the elasticity: 0 where the server has room, 1 where
twice as many in flight take twice as long, so that throughput is flat. Given is what the turns show beyond doubt, the
slope less two standard errors: without that, chance took a server of constant latency for a full one in 2 of 40
simulated batches. It is an association: a server that is slow for reasons of its own also fills up, and reads as full.
"""

from __future__ import annotations

import math

KEEP = 0.998
"""Weight that is kept a turn: the last 500 turns or so count."""
ENOUGH_TURNS = 20.0
ENOUGH_SPREAD = 0.1
"""Standard deviation of log(requests in flight) below which the slope cannot be told."""
MAX_ERROR = 0.25
"""Standard error of the slope above which it is not given."""


class Elasticity:
    """Takes turns in one by one, O(1) each."""

    __slots__ = ("_n", "_x", "_xx", "_xy", "_xz", "_y", "_yy", "_z", "_zy", "_zz")

    def __init__(self) -> None:
        self._n = self._x = self._y = self._z = 0.0
        self._xx = self._xy = self._xz = self._yy = self._zy = self._zz = 0.0

    def add(self, seconds: float, in_flight: float, output_tokens: int | None) -> None:
        """Take a completed turn in.

        Args:
            seconds: how long it took; nothing is learnt from one of 0.
            in_flight: requests in flight meanwhile, itself included, averaged over the turn; > 0.
            output_tokens: None where the server does not tell.
        """
        if seconds <= 0 or in_flight <= 0:
            return
        x, y, z = math.log(in_flight), math.log(seconds), math.log1p(output_tokens or 0)
        self._n = KEEP * self._n + 1
        self._x = KEEP * self._x + x
        self._y = KEEP * self._y + y
        self._z = KEEP * self._z + z
        self._xx = KEEP * self._xx + x * x
        self._xy = KEEP * self._xy + x * y
        self._xz = KEEP * self._xz + x * z
        self._yy = KEEP * self._yy + y * y
        self._zy = KEEP * self._zy + z * y
        self._zz = KEEP * self._zz + z * z

    def value(self) -> float | None:
        """Return the elasticity at least, 0 to 1; None where the turns so far cannot tell."""
        n = self._n
        if n < ENOUGH_TURNS:
            return None
        xx, yy, zz = self._xx - self._x**2 / n, self._yy - self._y**2 / n, self._zz - self._z**2 / n
        xy, xz = self._xy - self._x * self._y / n, self._xz - self._x * self._z / n
        zy = self._zy - self._z * self._y / n
        if zz > 1e-9 * n:  # take out what the length of replies explains
            xx, xy, yy = xx - xz**2 / zz, xy - xz * zy / zz, yy - zy**2 / zz
        if xx < ENOUGH_SPREAD**2 * n:
            return None
        slope = xy / xx
        residual = max(0.0, yy - slope * xy) / (n - 3)
        error = math.sqrt(residual / xx)
        return None if error > MAX_ERROR else min(1.0, max(0.0, slope - 2 * error))
