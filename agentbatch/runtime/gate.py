"""One limit that tasks wait at: the asynchronous side of a `SlotTable`.

Lives here: waking waiters. Must not live here: who is next (policy/slots, policy/caas) or what a slot is for.
A grant is reserved before its waiter wakes, and withdrawing and releasing are one call, so a cancel that lands
between the two hands the slot on (cpython#90155, anyio#1145).
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

import anyio
import anyio.lowlevel

from agentbatch.policy.slots import SlotStatistics, SlotTable
from agentbatch.runtime.clock import BatchClock


class Ticket:
    """A place at a gate: waiting until `granted_s` is set, then holding a slot until it leaves."""

    __slots__ = ("_event", "asked_s", "granted_s", "open")

    def __init__(self, asked_s: float) -> None:
        self.asked_s = asked_s
        self.granted_s: float | None = None
        self.open = True
        self._event: anyio.Event | None = None

    def grant(self, now_s: float) -> None:
        """Reserve the slot, then wake whoever waits."""
        self.granted_s = now_s
        if self._event is not None:
            self._event.set()

    def withdrawn(self) -> None:
        """Wake whoever waits: there will be no slot."""
        if self._event is not None:
            self._event.set()

    async def wait(self) -> bool:
        """Wait for the slot, not at all when it is granted already; False when the ticket was withdrawn instead."""
        if self.granted_s is None and self.open:
            self._event = anyio.Event()
            await self._event.wait()
            # asyncio delivers a cancellation of this very tick only at the next await: work must not begin on it
            await anyio.lowlevel.checkpoint_if_cancelled()
        return self.open

    def __repr__(self) -> str:
        state = "left" if not self.open else "waiting" if self.granted_s is None else "held"
        return f"<Ticket {state} asked_s={self.asked_s:.3f}>"


class Gate:
    """At most `capacity` tickets hold a slot; the others wait in the order of their keys.

    Args:
        on_grant: called with each grant's wait in seconds, 0 where a slot was free, before anybody wakes.
    """

    def __init__(
        self, name: str, capacity: int, clock: BatchClock, on_grant: Callable[[float], None] = lambda wait_s: None
    ) -> None:
        self.name = name
        self._clock = clock
        self._on_grant = on_grant
        self._table: SlotTable[Ticket] = SlotTable(capacity)
        self.closed = False
        """Nobody new is let in."""

    def ask(self, key: tuple[float, ...], asked_s: float) -> Ticket:
        """Queue under a fixed key, never blocking; the ticket may come back granted, or withdrawn if closed."""
        ticket = Ticket(asked_s)
        if self.closed:
            ticket.open = False
        elif self._table.request(ticket, key):
            self._on_grant(0.0)
            ticket.grant(asked_s)
        return ticket

    def leave(self, ticket: Ticket) -> bool:
        """Withdraw or release `ticket`; True when its slot went to a waiter. A second call changes nothing."""
        if not ticket.open:
            return False
        ticket.open = False
        granted = self._table.leave(ticket)
        if ticket.granted_s is None:
            ticket.withdrawn()
        self._wake(granted)
        return bool(granted)

    def close(self) -> None:
        """Let nobody new in; tickets in the queue and slots held stay."""
        self.closed = True

    def resize(self, capacity: int) -> None:
        """Change the limit; held slots stay until they are given back."""
        self._wake(self._table.resize(capacity))

    def _wake(self, granted: list[Ticket]) -> None:
        now_s = self._clock.now()
        for ticket in granted:
            self._on_grant(now_s - ticket.asked_s)
            ticket.grant(now_s)

    def statistics(self) -> SlotStatistics:
        """Return capacity, held and waiting, counted from the table itself."""
        return self._table.statistics()

    def __repr__(self) -> str:
        s = self.statistics()
        return f"<Gate {self.name!r} held={s.held}/{s.capacity} waiting={s.waiting}>"


class Slot:
    """Holds one slot of a gate for the length of an `async with`."""

    __slots__ = ("_gate", "ticket")

    def __init__(self, gate: Gate, ticket: Ticket) -> None:
        self._gate = gate
        self.ticket = ticket

    async def __aenter__(self) -> Ticket:
        try:
            await self.ticket.wait()
        except BaseException:  # cancelled while waiting, perhaps after the grant: hand the slot on
            self._gate.leave(self.ticket)
            raise
        return self.ticket

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._gate.leave(self.ticket)
