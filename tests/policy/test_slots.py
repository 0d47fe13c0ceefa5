"""The grant table against a model of ten lines, and the faults that users of such tables reported."""

import random
import sys
import weakref
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agentbatch.policy.slots import SlotStatistics, SlotTable

CAPACITIES = st.integers(1, 5)
KEYS = st.tuples(st.integers(0, 2), st.integers(-2, 0))  # few values, so that ties are common


class Ticket:
    """Hashable and nothing else: a table that compares tickets fails."""

    def __lt__(self, other: object) -> bool:
        raise AssertionError("tickets must never be compared")

    __gt__ = __le__ = __ge__ = __lt__


class Model:
    """What a grant table does, slowly."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.entry = capacity, 0
        self.held: list[Ticket] = []
        self.waiting: list[tuple[tuple[Any, ...], int, Ticket]] = []

    def request(self, ticket: Ticket, key: tuple[Any, ...]) -> list[Ticket]:
        self.entry += 1
        self.waiting.append((key, self.entry, ticket))
        return self.grant()

    def leave(self, ticket: Ticket) -> list[Ticket]:
        self.held = [t for t in self.held if t is not ticket]
        self.waiting = [w for w in self.waiting if w[2] is not ticket]
        return self.grant()

    def resize(self, capacity: int) -> list[Ticket]:
        self.capacity = capacity
        return self.grant()

    def grant(self) -> list[Ticket]:
        self.waiting.sort(key=lambda w: w[:2])
        free = max(0, self.capacity - len(self.held))
        granted = [w[2] for w in self.waiting[:free]]
        self.held, self.waiting = self.held + granted, self.waiting[free:]
        return granted


class Slots(RuleBasedStateMachine):
    @initialize(capacity=CAPACITIES)
    def start(self, capacity: int) -> None:
        self.table: SlotTable[Ticket] = SlotTable(capacity)
        self.model = Model(capacity)
        self.live: list[Ticket] = []
        self.gone: list[Ticket] = []

    def pick(self, tickets: list[Ticket], number: int) -> Ticket:
        return tickets.pop(number % len(tickets))

    def granted(self, tickets: list[Ticket]) -> None:
        if tickets:
            assert self.table.held <= self.table.capacity

    @rule(key=KEYS)
    def request(self, key: tuple[int, int]) -> None:
        ticket = Ticket()
        now = self.table.request(ticket, key)
        assert now == (self.model.request(ticket, key) == [ticket])
        self.granted([ticket] if now else [])
        self.live.append(ticket)

    @precondition(lambda self: self.gone)
    @rule(key=KEYS, number=st.integers(0, 99))
    def come_back(self, key: tuple[int, int], number: int) -> None:
        ticket = self.pick(self.gone, number)
        assert self.table.request(ticket, key) == (self.model.request(ticket, key) == [ticket])
        self.live.append(ticket)

    @precondition(lambda self: self.live)
    @rule(number=st.integers(0, 99))
    def leave(self, number: int) -> None:
        ticket = self.pick(self.live, number)
        granted = self.table.leave(ticket)
        assert granted == self.model.leave(ticket)
        self.granted(granted)
        self.gone.append(ticket)

    @rule(capacity=CAPACITIES)
    def resize(self, capacity: int) -> None:
        granted = self.table.resize(capacity)
        assert granted == self.model.resize(capacity)
        self.granted(granted)

    @precondition(lambda self: self.live)
    @rule(number=st.integers(0, 99), key=KEYS)
    def request_twice(self, number: int, key: tuple[int, int]) -> None:
        with pytest.raises(ValueError, match="already"):
            self.table.request(self.live[number % len(self.live)], key)

    @precondition(lambda self: self.gone)
    @rule(number=st.integers(0, 99))
    def leave_twice(self, number: int) -> None:
        with pytest.raises(ValueError, match="neither holds a slot nor waits"):
            self.table.leave(self.gone[number % len(self.gone)])

    @precondition(lambda self: self.table.waiting)
    @rule(key=st.sampled_from([("z", 0), (None, 0), (), (0, 0, 0)]))
    def ask_with_a_bad_key(self, key: tuple[Any, ...]) -> None:
        with pytest.raises((TypeError, ValueError)):
            self.table.request(Ticket(), key)

    @invariant()
    def agrees_with_the_model(self) -> None:
        held, waiting = len(self.model.held), len(self.model.waiting)
        assert self.table.statistics() == SlotStatistics(self.model.capacity, held, waiting)
        assert (self.table.held, self.table.waiting) == (held, waiting)
        assert all(self.table.holds(t) and not self.table.waits(t) for t in self.model.held)
        assert all(self.table.waits(w[2]) and not self.table.holds(w[2]) for w in self.model.waiting)
        assert not any(self.table.holds(t) or self.table.waits(t) for t in self.gone)

    @invariant()
    def conserves_tickets(self) -> None:
        assert self.table.held + self.table.waiting == len(self.live)

    @invariant()
    def no_slot_is_idle_while_somebody_waits(self) -> None:
        assert not self.table.waiting or self.table.held >= self.table.capacity


TestSlots = Slots.TestCase


def test_shrinking_below_held_drains() -> None:
    """Case 3, dspace-python-client#6: ramp-down dead-locked, and the count went below zero."""
    table: SlotTable[int] = SlotTable(8)
    for ticket in range(20):
        table.request(ticket, (ticket,))
    assert table.resize(1) == []
    granted: list[int] = []
    for ticket in range(8):
        assert table.held == 8 - ticket
        granted += table.leave(ticket)
        assert table.held >= 1
    assert granted == [8]
    assert repr(table) == "<SlotTable held=1/1 waiting=11>"
    for ticket in range(8, 19):
        assert table.leave(ticket) == [ticket + 1]
    assert table.leave(19) == []
    assert table.statistics() == SlotStatistics(capacity=1, held=0, waiting=0)


def test_growing_grants_in_order() -> None:
    table: SlotTable[str] = SlotTable(1)
    for ticket, key in (("a", 0), ("d", 3), ("c", 2), ("b", 1)):
        table.request(ticket, (key,))
    assert table.resize(3) == ["b", "c"]
    assert table.resize(3) == []


def test_exactly_n_enter_after_a_thousand_cancels() -> None:
    """Case 1, python/cpython#90155: a cancelled waiter left the semaphore broken for those after it."""
    rng = random.Random(90155)
    table: SlotTable[int] = SlotTable(5)
    live = []
    for ticket in range(1000):
        table.request(ticket, (rng.random(),))
        live.append(ticket)
        if rng.random() < 0.5:
            table.leave(live.pop(rng.randrange(len(live))))
    for ticket in rng.sample(live, len(live)):
        table.leave(ticket)
    assert table.statistics() == SlotStatistics(capacity=5, held=0, waiting=0)
    assert sum(table.request(-ticket, (ticket,)) for ticket in range(1, 101)) == 5


def test_a_grant_whose_waiter_was_cancelled_is_handed_on() -> None:
    """Case 2, agronholm/anyio#1145: the head waiter, cancelled in the tick of the release, stranded the next."""
    table: SlotTable[str] = SlotTable(1)
    for ticket in ("holder", "head", "next"):
        table.request(ticket, (0,))
    assert table.leave("holder") == ["head"]
    assert table.leave("head") == ["next"]


def test_grant_order_is_the_sorted_order_of_the_keys() -> None:
    rng = random.Random(7)
    keys = [(rng.randrange(9), -rng.randrange(9), rng.randrange(9), entry) for entry in range(20_000)]
    table: SlotTable[object] = SlotTable(1)
    table.request("first", (0, 0, 0, 0))
    for key in keys:
        table.request(key, key)
    order, holder = [], "first"
    while granted := table.leave(holder):
        (holder,) = granted
        order.append(holder)
    assert order == sorted(keys)


def test_a_million_withdrawals_leave_nothing_behind() -> None:
    table: SlotTable[int] = SlotTable(1)
    table.request(-1, (0, 0))
    table.request(-2, (0, 0))
    blocks = sys.getallocatedblocks()
    for ticket in range(1_000_000):
        table.request(ticket, (1, ticket))
        table.leave(ticket)
    assert sys.getallocatedblocks() - blocks < 1_000


def test_withdrawn_tickets_are_let_go() -> None:
    table: SlotTable[Ticket] = SlotTable(1)
    kept = [Ticket() for _ in range(10)]
    for ticket in kept:
        table.request(ticket, (0,))
    alive: weakref.WeakSet[Ticket] = weakref.WeakSet()
    for _ in range(1000):
        ticket = Ticket()
        alive.add(ticket)
        table.request(ticket, (1,))
        table.leave(ticket)
    assert len(alive) <= 100
    assert table.waiting == 9


@pytest.mark.parametrize("capacity", [0, -1, True, False, 1.0, float("nan"), "3", None])
def test_capacity_is_a_whole_number_from_one_on(capacity: Any) -> None:
    with pytest.raises(ValueError, match="capacity must be an int >= 1"):
        SlotTable(capacity)
    table: SlotTable[str] = SlotTable(2)
    with pytest.raises(ValueError, match="say how many slots"):
        table.resize(capacity)
    assert table.capacity == 2


def test_statistics_are_frozen() -> None:
    with pytest.raises(AttributeError):
        SlotTable(1).statistics().held = 3  # type: ignore[misc]
