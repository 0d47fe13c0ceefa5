"""One grant table for every limit: who holds a slot, who waits, and who is next.

Lives here: tickets, fixed keys, the order of grants. Must not live here: clocks, waking tasks, what a slot is for.
Used alike for CS and CE (spec §2). Keys are fixed at the request; the smallest is granted first.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)
Key = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class SlotStatistics:
    """Counts of one table: `capacity` slots, `held` of them taken, `waiting` tickets queued."""

    capacity: int
    held: int
    waiting: int


class SlotTable(Generic[T]):
    """At most `capacity` tickets hold a slot; the others wait, smallest key first, ties by arrival.

    Every operation is O(log n) amortised. A withdrawn ticket stays in the heap until it surfaces or half the heap is
    stale, so memory follows the number of live tickets.

    Args:
        capacity: slots, at least 1.

    Raises:
        ValueError: capacity is not a whole number of at least 1.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = _checked(capacity)
        self._held: set[T] = set()
        self._waiting: dict[T, int] = {}
        self._heap: list[tuple[Key, int, T]] = []
        self._entries = 0

    def request(self, ticket: T, key: Key) -> bool:
        """Ask for a slot; True when it is granted at once, False when the ticket now waits.

        Raises:
            ValueError: the ticket is in the table already.
        """
        if ticket in self._held or ticket in self._waiting:
            raise ValueError(f"ticket {ticket!r} is in the table already: it must leave before it asks again")
        if len(self._held) < self._capacity:  # nobody waits then: every free slot is granted as it falls free
            self._held.add(ticket)
            return True
        self._entries += 1
        self._waiting[ticket] = self._entries
        heapq.heappush(self._heap, (key, self._entries, ticket))
        return False

    def leave(self, ticket: T) -> list[T]:
        """Release the slot that `ticket` holds, or withdraw its request; return the tickets granted by it, in order.

        Raises:
            ValueError: the ticket is not in the table.
        """
        if ticket in self._held:
            self._held.remove(ticket)
            return self._grant()
        if self._waiting.pop(ticket, None) is None:
            raise ValueError(f"ticket {ticket!r} is not in the table: it never asked, or has left already")
        if len(self._heap) > 2 * len(self._waiting) + 16:
            self._heap = [entry for entry in self._heap if self._waiting.get(entry[2]) == entry[1]]
            heapq.heapify(self._heap)
        return []

    def resize(self, capacity: int) -> list[T]:
        """Change the limit and return the tickets granted by it; below `held` it drains as slots are given back.

        Raises:
            ValueError: capacity is not a whole number of at least 1.
        """
        self._capacity = _checked(capacity)
        return self._grant()

    def _grant(self) -> list[T]:
        granted: list[T] = []
        while self._waiting and len(self._held) < self._capacity:
            _, entry, ticket = heapq.heappop(self._heap)
            if self._waiting.get(ticket) == entry:  # else withdrawn, and perhaps asked anew under a later entry
                del self._waiting[ticket]
                self._held.add(ticket)
                granted.append(ticket)
        return granted

    def holds(self, ticket: T) -> bool:
        """Tell whether `ticket` holds a slot."""
        return ticket in self._held

    def waits(self, ticket: T) -> bool:
        """Tell whether `ticket` waits for one."""
        return ticket in self._waiting

    @property
    def capacity(self) -> int:
        """Slots in all."""
        return self._capacity

    @property
    def held(self) -> int:
        """Slots taken; above `capacity` only while a smaller limit drains."""
        return len(self._held)

    @property
    def waiting(self) -> int:
        """Tickets queued."""
        return len(self._waiting)

    def statistics(self) -> SlotStatistics:
        """Return the three counts, read from the table's state."""
        return SlotStatistics(self._capacity, len(self._held), len(self._waiting))

    def __repr__(self) -> str:
        return f"<SlotTable held={self.held}/{self._capacity} waiting={self.waiting}>"


def _checked(capacity: int) -> int:
    if isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 1:
        raise ValueError(f"capacity must be a whole number of at least 1, not {capacity!r}: with no slot nothing could run")
    return capacity
