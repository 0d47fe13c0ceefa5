"""The waiting queue of one worker and the order in which it is tried.

This is the seam for scheduling policies: `head` is whom the admission walk asks next, and any refusal ends
the walk, so order decides everything (sglang.md). Only "fcfs" is known: arrival order.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

POLICIES = ("fcfs",)
"""Names accepted as `schedule_policy`."""


class Queued(Protocol):
    """What can wait."""

    @property
    def rid(self) -> Hashable:
        """Name, unique in the queue."""


T = TypeVar("T", bound=Queued)


class WaitingQueue(Generic[T]):
    """Requests that wait for admission, first come first served; every operation is O(1)."""

    def __init__(self) -> None:
        self._entries: dict[Hashable, T] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: T) -> None:
        """Append `entry`."""
        self._entries[entry.rid] = entry

    def head(self) -> T | None:
        """Return whom the walk tries next."""
        return next(iter(self._entries.values()), None)

    def remove(self, entry: T) -> None:
        """Take `entry` out: admitted or aborted."""
        del self._entries[entry.rid]
