"""The oldest of many items, where most uses only make an item younger.

A heap with lazy repair: an item is in it at most once, under the stamp it had when offered; entries whose
item died or was used since are mended when they surface. Every operation is O(log n) amortised and dead
entries never exceed the live ones for long, so a server may run for ever.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


class Stamped(Protocol):
    """What can be kept: `stamp` is the logical time of last use, `queued` belongs to the heap."""

    stamp: int
    queued: bool


T = TypeVar("T", bound=Stamped)


class OldestFirst(Generic[T]):
    """Candidates for eviction, oldest first.

    Args:
        alive: tells whether an item may be evicted now; those that may not are dropped when they surface
            and must be offered again when that changes.
    """

    def __init__(self, alive: Callable[[T], bool]) -> None:
        self._alive = alive
        self._heap: list[tuple[int, int, T]] = []
        self._offers = 0
        self._tidy_at = 64

    def offer(self, item: T) -> None:
        """Make `item` a candidate; no effect when it is one already."""
        if item.queued:
            return
        if len(self._heap) >= self._tidy_at:
            self._tidy()
        item.queued = True
        self._offers += 1
        heapq.heappush(self._heap, (item.stamp, self._offers, item))

    def take(self) -> T | None:
        """Remove and return the candidate used longest ago, or None when there is none."""
        while self._heap:
            stamp, _, item = self._heap[0]
            if not self._alive(item):
                heapq.heappop(self._heap)
                item.queued = False
            elif stamp != item.stamp:
                self._offers += 1
                heapq.heapreplace(self._heap, (item.stamp, self._offers, item))
            else:
                heapq.heappop(self._heap)
                item.queued = False
                return item
        return None

    def _tidy(self) -> None:
        kept = []
        for entry in self._heap:
            if self._alive(entry[2]):
                kept.append(entry)
            else:
                entry[2].queued = False
        heapq.heapify(kept)
        self._heap = kept
        self._tidy_at = max(64, 2 * len(kept))
