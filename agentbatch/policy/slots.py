"""Who holds a slot and who is next: one grant table that serves CS and CE alike (spec §2).

Lives here: the counts and the order. Must not live here: what a slot is for, how a key is made (`caas.py`),
how a waiter is woken (the caller does that with the tickets returned to it), a clock.

Rules:
- At most `capacity` tickets hold a slot; nobody waits while a slot is free.
- The waiting ticket with the smallest key is granted next. A key is fixed at request; ties go by arrival.
- A grant is made inside the call that frees the slot, before anybody wakes, and `leave` both withdraws and
  releases: a cancel that lands between grant and wake hands the slot on (python/cpython#90155,
  agronholm/anyio#1145).
- Counts are the sizes of what is held and what waits, never sums of steps, so they cannot drift.

Source: the paper's admission and environment limits, §4 (Eq. 11-12 set the capacities).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

T = TypeVar("T", bound=Hashable)

_SLACK = 64
"""Withdrawn entries that a table keeps before it thinks of clearing them out; short queues never do."""


@dataclass(frozen=True, slots=True)
class SlotStatistics:
    """Size of a `SlotTable` at one moment, in tickets.

    Args:
        capacity: most tickets that may hold a slot, >= 1.
        held: tickets that hold one, >= 0; above `capacity` only while a shrunk table drains.
        waiting: tickets in the queue, >= 0.
    """

    capacity: int
    held: int
    waiting: int


class SlotTable(Generic[T]):
    """At most `capacity` tickets hold a slot; the others wait, smallest key first.

    Args:
        capacity: slots, an integer >= 1.

    Raises:
        ValueError: `capacity` is not an integer >= 1.
    """

    __slots__ = ("_capacity", "_entries", "_heap", "_held", "_waiting")

    def __init__(self, capacity: int) -> None:
        self._capacity = _checked(capacity)
        self._held: set[T] = set()
        # (*key, entry number, ticket): the number decides between equal keys; tickets are never compared. One
        # flat tuple compares in half the time of a key within a tuple, and asks for keys of one length.
        self._heap: list[tuple[Any, ...]] = []
        # A heap entry counts only while this maps its ticket to that very entry: a ticket that left and came
        # back has a new one, and the old one is dropped when it surfaces.
        self._waiting: dict[T, tuple[Any, ...]] = {}
        self._entries = 0

    def request(self, ticket: T, key: tuple[Any, ...]) -> bool:
        """Ask for a slot; O(log n).

        Args:
            ticket: names this request until it leaves; hashable, need not be comparable.
            key: place in the queue, smallest first; of the same length as the waiting keys and comparable
                with them.

        Returns:
            True: the slot is granted now. False: the ticket waits; a later `leave` or `resize` returns it.

        Raises:
            ValueError: the ticket is in the table already, or the key has another length than those waiting.
            TypeError: the key cannot be compared with those waiting; the table is as it was.
        """
        if ticket in self._held or ticket in self._waiting:
            state = "holds a slot" if ticket in self._held else "waits"
            raise ValueError(f"ticket {ticket!r} already {state}: let it leave first, or ask with a new one")
        if len(self._held) < self._capacity:  # then nobody waits: every call ends with the free slots granted
            self._held.add(ticket)
            return True
        self._entries += 1
        entry = (*key, self._entries, ticket)
        if self._heap and len(entry) != len(self._heap[0]):
            raise ValueError(f"key {key!r} is not as long as the waiting keys: use one kind of key per table")
        try:
            heappush(self._heap, entry)
        except BaseException:  # heappush stops half-way when a comparison raises
            self._rebuild()
            raise
        self._waiting[ticket] = entry
        return False

    def leave(self, ticket: T) -> list[T]:
        """Give a slot back, or withdraw from the queue; O(log n) amortised.

        Returns:
            The tickets that this grants a slot, in grant order.

        Raises:
            ValueError: the ticket is not in the table.
        """
        if ticket in self._held:
            self._held.remove(ticket)
            return self._grant()
        if self._waiting.pop(ticket, None) is None:
            raise ValueError(f"ticket {ticket!r} neither holds a slot nor waits: it leaves once per request")
        if len(self._heap) > 2 * len(self._waiting) + _SLACK:
            self._rebuild()
        return []

    def resize(self, capacity: int) -> list[T]:
        """Change the capacity; held slots stay held, so a shrunk table drains as they are given back.

        Args:
            capacity: slots from now on, an integer >= 1.

        Returns:
            The tickets that this grants a slot, in grant order.

        Raises:
            ValueError: `capacity` is not an integer >= 1; the table is as it was.
        """
        self._capacity = _checked(capacity)
        return self._grant()

    def holds(self, ticket: T) -> bool:
        """Tell whether `ticket` holds a slot."""
        return ticket in self._held

    def waits(self, ticket: T) -> bool:
        """Tell whether `ticket` is in the queue."""
        return ticket in self._waiting

    @property
    def capacity(self) -> int:
        """Most tickets that may hold a slot, >= 1."""
        return self._capacity

    @property
    def held(self) -> int:
        """Tickets that hold a slot; above `capacity` only while a shrunk table drains."""
        return len(self._held)

    @property
    def waiting(self) -> int:
        """Tickets in the queue."""
        return len(self._waiting)

    def statistics(self) -> SlotStatistics:
        """Return capacity, held and waiting as they are now."""
        return SlotStatistics(self._capacity, len(self._held), len(self._waiting))

    def _grant(self) -> list[T]:
        granted: list[T] = []
        while self._waiting and len(self._held) < self._capacity:
            entry = heappop(self._heap)
            ticket: T = entry[-1]
            if self._waiting.get(ticket) is entry:
                del self._waiting[ticket]
                self._held.add(ticket)
                granted.append(ticket)
        return granted

    def _rebuild(self) -> None:
        # Called once more than half of the heap has withdrawn: O(1) for each of those.
        self._heap = list(self._waiting.values())
        heapify(self._heap)

    def __repr__(self) -> str:
        return f"<SlotTable held={len(self._held)}/{self._capacity} waiting={len(self._waiting)}>"


def _checked(capacity: int) -> int:
    # bool is an int and 3.0 == 3, but neither is a number of slots that somebody meant.
    if not isinstance(capacity, int) or isinstance(capacity, bool) or capacity < 1:
        raise ValueError(f"capacity must be an int >= 1, not {capacity!r}: say how many slots, such as 8")
    return capacity
