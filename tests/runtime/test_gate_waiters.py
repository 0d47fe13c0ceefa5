"""The gate's waiters under cancellation: reserved before waking, handed on, never lost."""

import random

import anyio
import anyio.lowlevel
import pytest

from agentbatch.runtime.clock import BatchClock
from agentbatch.runtime.gate import Gate, Slot

pytestmark = pytest.mark.anyio


def make(capacity: int) -> Gate:
    clock = BatchClock()
    clock.start()
    return Gate("g", capacity, clock)


async def test_after_a_thousand_random_cancels_exactly_n_enter() -> None:
    """python/cpython#90155: a semaphore was broken after a cancelled waiter."""
    gate = make(3)
    source = random.Random(1)
    entry = 0

    async def visitor(scope: anyio.CancelScope, key: int) -> None:
        with scope:
            async with Slot(gate, gate.ask((key,), 0.0)):
                await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        scopes = []
        for _ in range(1000):
            entry += 1
            scope = anyio.CancelScope()
            scopes.append(scope)
            group.start_soon(visitor, scope, entry)
            if source.random() < 0.3:
                await anyio.lowlevel.checkpoint()
            source.choice(scopes).cancel()
    assert (gate.statistics().held, gate.statistics().waiting) == (0, 0)
    tickets = [gate.ask((n,), 0.0) for n in range(5)]
    assert [ticket.granted_s is not None for ticket in tickets] == [True, True, True, False, False]


async def test_a_head_waiter_cancelled_in_the_tick_of_the_release_hands_the_slot_on() -> None:
    """agronholm/anyio#1145: the cancelled head waiter stranded the next."""
    gate = make(1)
    first = gate.ask((0,), 0.0)
    head_scope = anyio.CancelScope()
    entered = anyio.Event()

    async def head() -> None:
        with head_scope:
            async with Slot(gate, gate.ask((1,), 0.0)):
                raise AssertionError("cancelled before it could enter")

    async def following() -> None:
        async with Slot(gate, gate.ask((2,), 0.0)):
            entered.set()

    async with anyio.create_task_group() as group:
        group.start_soon(head)
        await anyio.wait_all_tasks_blocked()
        group.start_soon(following)
        await anyio.wait_all_tasks_blocked()
        gate.leave(first)  # grants to the head, whose task has not run yet
        head_scope.cancel()
        with anyio.fail_after(5):
            await entered.wait()
    assert gate.statistics().held == 0


async def test_shrinking_while_all_slots_are_held_drains() -> None:
    """dspace-python-client#6: ramping down dead-locked."""
    gate = make(8)
    held = [gate.ask((n,), 0.0) for n in range(8)]
    waiting = [gate.ask((8 + n,), 0.0) for n in range(4)]
    gate.resize(1)
    for n, ticket in enumerate(held):
        assert gate.statistics().held == 8 - n
        assert all(one.granted_s is None for one in waiting)
        gate.leave(ticket)
    assert [one.granted_s is not None for one in waiting] == [True, False, False, False]
    for one in waiting:
        gate.leave(one)
    assert (gate.statistics().held, gate.statistics().waiting) == (0, 0)


async def test_leaving_twice_releases_once() -> None:
    gate = make(1)
    first, second, third = (gate.ask((n,), 0.0) for n in range(3))
    gate.leave(first)
    gate.leave(first)
    assert second.granted_s is not None
    assert third.granted_s is None
