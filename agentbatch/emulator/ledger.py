"""What reached one worker: a bounded record for people and tests, never an input to anything."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

KEPT = 1000
"""Requests remembered, newest last."""


@dataclass(slots=True)
class Seen:
    """One request as it reached the worker; `outcome` is "open", "ok", "aborted" or "failed"."""

    label: str | None
    endpoint: str
    streamed: bool
    prompt_tokens: int
    output_tokens: int
    in_flight: int
    """Requests inside, this one included, when it came."""
    cached_tokens: int | None = None
    outcome: str = "open"


class Ledger:
    """Requests seen, in flight now and at the peak."""

    def __init__(self) -> None:
        self._kept: deque[Seen] = deque(maxlen=KEPT)
        self.seen = 0
        self.in_flight = 0
        self.peak_in_flight = 0

    def enter(
        self, *, label: str | None, endpoint: str, streamed: bool, prompt_tokens: int, output_tokens: int
    ) -> Seen:
        """Note a request that goes into the engine; `leave` must follow."""
        self.seen += 1
        self.in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        entry = Seen(label, endpoint, streamed, prompt_tokens, output_tokens, self.in_flight)
        self._kept.append(entry)
        return entry

    def leave(self, entry: Seen, outcome: str, cached_tokens: int | None = None) -> None:
        """Note how it ended."""
        self.in_flight -= 1
        entry.outcome = outcome
        entry.cached_tokens = cached_tokens

    def view(self) -> dict[str, Any]:
        """Return everything as JSON-able values."""
        return {
            "seen": self.seen, "in_flight": self.in_flight, "peak_in_flight": self.peak_in_flight,
            "requests": [asdict(entry) for entry in self._kept],
        }
