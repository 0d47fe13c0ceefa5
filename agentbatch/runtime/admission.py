"""Who may run: keys, labels and the admission gate (CS); first come first served (spec §2) unless asked otherwise."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from inspect import isawaitable
from typing import Any, TypeVar

import anyio

from agentbatch.errors import BatchDrained, SlotConflict, TrajectoryCancelled, UsageError
from agentbatch.events import Admitted, TrajectoryEnded
from agentbatch.policy.admission import AdmissionOrder
from agentbatch.runtime import current
from agentbatch.runtime.clock import BatchClock
from agentbatch.runtime.failure import describe, outcome_of
from agentbatch.runtime.gate import Gate, Ticket
from agentbatch.runtime.hub import Hub
from agentbatch.runtime.labels import Labels
from agentbatch.runtime.results import Completed, Failed, Result
from agentbatch.runtime.trajectory import Trajectory

T = TypeVar("T")
R = TypeVar("R")
Solve = Callable[[Trajectory, T], Awaitable[R]]
Pair = tuple[Trajectory, Ticket]

WITHDRAWN = "the batch drains: this trajectory was not admitted any more"


class Admission:
    """Submits trajectories, holds each one's slot from admission to its end, and counts how they ended."""

    def __init__(self, cs: int, order: AdmissionOrder, labels: Labels, clock: BatchClock, hub: Hub) -> None:
        self.gate = Gate("admission", cs, clock)
        self.completed = 0
        self.failed = 0
        self.outlived = 0
        """Trajectories that have ended but for a thread, which keeps the slot."""
        self._order = order
        self._labels = labels
        self._clock = clock
        self._hub = hub
        self._entries = 0
        self._live: dict[Ticket, Trajectory] = {}
        self._tickets: dict[str, Ticket] = {}
        """By key; a trajectory that only its thread outlives has left it, so that the task can be tried again."""
        self._withdrawing = False

    def submit(self, batch: Any, keys: Iterable[str], *, given: bool = True) -> list[Pair]:
        """Queue one trajectory a key, all at once; nothing is queued when any key is bad. Returns them as given.

        Args:
            given: whether somebody chose the keys. Positions may stand twice, in two calls of `map` at once: their
                labels differ all the same.

        Raises:
            UsageError: a given key stands twice, or belongs to a trajectory that has not ended.
            SlotConflict: the caller runs inside a trajectory of this batch, whose slot it would wait for.
        """
        inside = current.current_trajectory()
        if inside is not None and inside.batch is batch:
            raise SlotConflict(
                f"a trajectory was started inside trajectory {inside.key!r}, which holds an admission slot: with every "
                "slot held so, nothing could go on; start it outside, or do the work in the trajectory you are in, "
                "perhaps in a child of it"
            )
        keys = list(keys)
        seen: set[str] = set()
        for key in keys if given else ():
            if key in seen or key in self._tickets:
                where = "stands twice among the tasks" if key in seen else "belongs to a trajectory that still runs"
                raise UsageError(f"task key {key!r} {where}: give each trajectory its own with key=…")
            seen.add(key)
        self._clock.begin()
        pairs = self._queue(batch, keys)
        if self.gate.closed:
            self._withdraw_waiting()
        batch.whereabouts.queued(self.gate.statistics().waiting, self._clock.now())
        self._announce_unknown(keys)
        return pairs

    def _queue(self, batch: Any, keys: list[str]) -> list[Pair]:
        submitted_s = self._clock.now()
        places = []
        for key in keys:
            self._entries += 1
            places.append(self._order.key(key, self._entries))
        trajectories = [Trajectory(batch, key, self._labels.of(key), submitted_s) for key in keys]
        tickets: dict[int, Ticket] = {}
        for index in sorted(range(len(keys)), key=places.__getitem__):  # free slots go to whoever asks first
            tickets[index] = self.gate.ask(places[index], submitted_s)
        pairs = [(trajectory, tickets[index]) for index, trajectory in enumerate(trajectories)]
        for trajectory, ticket in pairs:
            self._live[ticket] = trajectory
            self._tickets.setdefault(trajectory.key, ticket)
        return pairs

    def _announce_unknown(self, keys: list[str]) -> None:
        """Say how many tasks the profile does not know; where it knows none, the keys are wrong, most likely."""
        unknown, count = self._order.unknown(keys), len(keys)
        if not unknown:
            return
        median = f"not in the profile: expected to take its median, {self._order.unknown_s:,.1f} s"
        if count == 1:
            said = f"a task key is {median}"
        elif unknown == count:
            said = f"none of the {count} task keys is in the profile: they are admitted as they were submitted"
        else:
            said = f"{unknown} of the {count} task keys {'is' if unknown == 1 else 'are'} {median}"
        self._hub.notice(
            "profile-unknown",
            f"{said}; give tasks the keys that they had there",
            once=count == 1,  # a harness that admits them one by one
            details={"unknown": unknown, "tasks": count},
        )

    def _forget(self, key: str, ticket: Ticket) -> None:
        if self._tickets.get(key) is ticket:
            del self._tickets[key]

    def drain(self) -> int:
        """Admit no more; those that wait end with `BatchDrained`, those that run go on. Returns how many waited."""
        self.gate.close()
        return self._withdraw_waiting()

    def _withdraw_waiting(self) -> int:
        if self._withdrawing:  # a hook drains at each end it hears of: no call within a call for all of them
            return 0
        waiting = [pair for pair in self._live.items() if pair[0].granted_s is None]
        self._withdrawing = True
        try:
            for ticket, trajectory in waiting:
                self.withdraw(trajectory, ticket, BatchDrained(WITHDRAWN))
        finally:
            self._withdrawing = False
        return len(waiting)

    def cancel_running(self, reason: str) -> None:
        """Cancel every trajectory that runs."""
        for trajectory in tuple(self._live.values()):
            if trajectory.is_open:
                trajectory.cancel(reason)

    @asynccontextmanager
    async def admitted(self, trajectory: Trajectory, ticket: Ticket) -> AsyncIterator[Trajectory]:
        """Run a block as an admitted trajectory; the slot goes back however the block ends."""
        error: BaseException | None = None
        try:
            if not await ticket.wait():
                raise BatchDrained(WITHDRAWN)
            admitted_s = ticket.granted_s or 0.0
            self._hub.emit(
                Admitted(at_s=admitted_s, submitted_s=ticket.asked_s, key=trajectory.key, label=trajectory.label)
            )
            async with trajectory.running(admitted_s):
                yield trajectory
        except BaseException as raised:
            error = raised
            raise
        finally:
            background, thread_ended = trajectory.batch.background, trajectory.outlived_by
            if thread_ended is None or not background.running:
                self.withdraw(trajectory, ticket, error)
            else:
                self.outlived += 1
                self._forget(trajectory.key, ticket)
                outlast = partial(self._outlast, trajectory, ticket, error, thread_ended)
                background.start_soon(background.linger, outlast)

    async def _outlast(
        self, trajectory: Trajectory, ticket: Ticket, error: BaseException | None, thread_ended: anyio.Event
    ) -> None:
        """Hold the slot until the thread has ended, or the batch does not wait for it any more."""
        try:
            await thread_ended.wait()
        finally:
            await trajectory.close_streams()  # a reply may have come in the meantime
            self.outlived -= 1
            self.withdraw(trajectory, ticket, error)

    def withdraw(self, trajectory: Trajectory, ticket: Ticket, error: BaseException | None) -> None:
        """Give the slot, or the place in the queue, back; the second call for a ticket changes nothing."""
        if self._live.pop(ticket, None) is None:
            return
        self._forget(trajectory.key, ticket)
        ended_s = self._clock.now()  # before the slot is handed on: an end never follows the admission it made room for
        self.gate.leave(ticket)
        trajectory.place.leave(ended_s)
        trajectory.batch.whereabouts.queued(self.gate.statistics().waiting, ended_s)
        ok = error is None
        self.completed += ok
        self.failed += not ok
        cancelled = isinstance(error, TrajectoryCancelled)
        self._hub.emit(
            TrajectoryEnded(
                at_s=ended_s,
                key=trajectory.key,
                label=trajectory.label,
                admitted_s=trajectory.admitted_s,
                outcome="ok" if error is None else "cancelled" if cancelled else outcome_of(error),
                turns=trajectory.progress.turns,
                error=None if error is None else trajectory.redact(describe(error)),
                timed_out=trajectory.timed_out,
            )
        )

    async def run_one(self, solve: Solve[T, R], task: T, trajectory: Trajectory, ticket: Ticket) -> Result[R]:
        """Run one task to its result; whatever it raises becomes `Failed`, cancellation from outside propagates."""
        failed: BaseException
        try:
            async with self.admitted(trajectory, ticket):
                running = solve(trajectory, task)
                if not isawaitable(running):
                    raise UsageError(
                        f"map awaits what its function returns, and {solve!r} returned {type(running).__name__}: "
                        "make it async, or give it to map_sync"
                    )
                value = await running
        except Exception as error:
            failed = error
        except anyio.get_cancelled_exc_class() as error:
            # A cancellation that no scope around us asked for is this task's own affair: it must not take the
            # others along, which a task group would do (indexable#2104).
            if anyio.current_effective_deadline() == -math.inf:
                raise
            failed = error
        except BaseExceptionGroup as group:
            # On trio a group that was cancelled also holds what its clean-up raised: that is this task's own affair,
            # and recorded as such; what goes on is the cancellation.
            cancelled, rest = group.split(anyio.get_cancelled_exc_class())
            if cancelled is None or (rest is not None and not isinstance(rest, Exception)):
                raise
            raise cancelled from None
        else:
            return Completed(
                key=trajectory.key,
                label=trajectory.label,
                value=value,
                timing=trajectory.timing(),
                usage=trajectory.usage,
            )
        return _failed(trajectory, failed)

    async def run_all(
        self, solve: Solve[T, R], tasks: list[T], pairs: list[Pair], done: Callable[[int, Result[R]], None]
    ) -> None:
        """Run every task, each started when its slot is granted; `done(position, result)` comes as each one ends."""

        async def run(index: int) -> None:
            done(index, await self.run_one(solve, tasks[index], *pairs[index]))

        try:
            async with anyio.create_task_group() as group:
                # grants come in this order, so waiting for one after the other is enough
                for index in sorted(range(len(pairs)), key=lambda index: self._order.key(pairs[index][0].key, index)):
                    trajectory, ticket = pairs[index]
                    if await ticket.wait():
                        group.start_soon(run, index)
                    else:
                        done(index, _failed(trajectory, BatchDrained(WITHDRAWN)))
        finally:
            for trajectory, ticket in pairs:  # those never started, when cancelled from outside
                if trajectory.outlived_by is None:
                    self.withdraw(trajectory, ticket, TrajectoryCancelled("the batch was cancelled"))


def _failed(trajectory: Trajectory, error: BaseException) -> Failed:
    return Failed(
        key=trajectory.key,
        label=trajectory.label,
        error=error,
        timing=trajectory.timing(),
        usage=trajectory.usage,
    )
