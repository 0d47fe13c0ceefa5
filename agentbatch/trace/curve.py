"""When which share of a batch had finished (spec §8, Eq. 21)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from agentbatch.events import Event
from agentbatch.trace.ledger import Ledger


@dataclass(frozen=True, slots=True)
class CompletionCurve:
    """The ends of a batch's trajectories, failed and cancelled ones included."""

    trajectories: int
    """How many there are, unfinished ones included."""
    ended_s: tuple[float, ...]
    """When each ended, ascending, in seconds since the first admission."""

    @classmethod
    def of(cls, ledger: Ledger) -> CompletionCurve:
        """Take the curve from a run's ledger."""
        start_s = ledger.first_admission_s or 0.0
        return cls(ledger.trajectories, tuple(sorted(event.at_s - start_s for event in ledger.ended.values())))

    def t(self, q: float) -> float | None:
        """Return t_q, the first time at which the finished share reaches or exceeds `q` percent, 0 to 100.

        None for an empty run, and where a killed run never came that far.
        """
        if not self.trajectories:
            return None
        needed = math.ceil(q * self.trajectories / 100 - 1e-9)  # 99.9 % of 1000 is 999, whatever the binary fraction
        if needed <= 0:
            return 0.0
        return self.ended_s[needed - 1] if needed <= len(self.ended_s) else None

    def tail(self, p: float) -> float | None:
        """Return L_p = t_100 − t_(100−p), seconds, or None where t_100 was never reached (Eq. 21)."""
        last, before = self.t(100), self.t(100 - p)
        return None if last is None or before is None else last - before


def completion_curve(events: Iterable[Event]) -> CompletionCurve:
    """Return the completion curve of a run's events, which may come in any order."""
    return CompletionCurve.of(Ledger.of(events))
