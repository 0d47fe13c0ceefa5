"""The modelled worker on scaled wall time: trace seconds = wall seconds · speed-up.

One timer stands at the worker's next event and is set again whenever that changes. When the machine is
slow, events are delivered late; their model times stay exact.
"""

from __future__ import annotations

import asyncio
import math

import structlog

from agentbatch.emulator.ask import Ask
from agentbatch.emulator.text import blocks
from agentbatch.sim import Finished, Request, Worker
from agentbatch.sim.states import GRID_TOKENS

_log = structlog.get_logger(__name__)


class Flight:
    """One request inside the engine, as seen by the task that answers it."""

    __slots__ = ("_waiter", "ask", "end", "failed", "first", "gone", "rid")

    def __init__(self, rid: int, ask: Ask) -> None:
        self.rid = rid
        self.ask = ask
        self.first = False  # its first token is out
        self.end: Finished | None = None
        self.gone = False  # the client went away, or the server stops
        self.failed = False  # the model broke: a defect of ours
        self._waiter: asyncio.Future[None] | None = None

    async def changed(self, timeout_s: float | None = None) -> None:
        """Wait until something above changes, or `timeout_s` of wall time have passed."""
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = None if timeout_s is None else loop.call_later(timeout_s, self.wake)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def wake(self) -> None:
        """Let the waiting task look again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def leave(self) -> None:
        """Note that nobody waits for the answer any more."""
        self.gone = True
        self.wake()


class Engine:
    """Drives one `Worker` from the running event loop.

    Args:
        worker: not shared with anything else.
        speedup: trace seconds per wall second, > 0.
    """

    def __init__(self, worker: Worker, speedup: float) -> None:
        self.worker = worker
        self.speedup = speedup
        self.flights: dict[int, Flight] = {}
        self.broken = False  # the model raised; every request fails from then on
        self._loop = asyncio.get_running_loop()
        self._origin_s = self._loop.time()
        self._timer: asyncio.Handle | None = None
        self._due_s = math.inf
        self._next_rid = 0

    def now_s(self) -> float:
        """Return trace seconds since the engine started."""
        return (self._loop.time() - self._origin_s) * self.speedup

    def submit(self, ask: Ask, label: str | None = None) -> Flight:
        """Queue a request; its `label` matters to the policy routing-prefix alone.

        Raises:
            UsageError: it can never fit in the KV pool.
        """
        prompt = blocks(ask.prompt)
        rest = ask.prompt[len(prompt) * GRID_TOKENS:] + ask.answer.tokens
        flight = Flight(self._next_rid, ask)
        self._next_rid += 1
        request = Request(
            rid=flight.rid, prompt_tokens=len(ask.prompt), output_tokens=len(ask.answer.tokens),
            prompt=prompt, reply=blocks(rest), label=label, max_new_tokens=ask.max_new_tokens,
        )
        self.worker.submit(request, self.now_s())
        self.flights[flight.rid] = flight
        self._arm()
        return flight

    def abort(self, flight: Flight) -> None:
        """Withdraw a request that nobody waits for; no effect once it has ended."""
        if self.flights.pop(flight.rid, None) is not None and not flight.failed:
            self.worker.abort(flight.rid, self.now_s())
            self._arm()

    def produced(self, flight: Flight) -> int:
        """Return how many output tokens exist by now."""
        if flight.end is not None:
            return flight.end.output_tokens
        return self.worker.produced(flight.rid, self.now_s())

    def flush(self) -> bool:
        """Forget the cache; False while requests are inside."""
        self._tick()
        return self.worker.flush()

    def close(self) -> None:
        """Stop the timer and send everybody away."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due_s = math.inf
        for flight in tuple(self.flights.values()):
            flight.leave()

    def _arm(self) -> None:
        due_s = self.worker.next_event_s()
        if due_s == self._due_s and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due_s = due_s
        if due_s == math.inf:
            return
        when = self._origin_s + due_s / self.speedup
        if when <= self._loop.time():
            self._timer = self._loop.call_soon(self._tick)
        else:
            self._timer = self._loop.call_at(when, self._tick)

    def _tick(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            events = self.worker.advance(self.now_s())
        except Exception:
            self.broken = True
            _log.exception("the engine model broke; its requests fail", flights=len(self.flights))
            for flight in tuple(self.flights.values()):
                flight.failed = True
                flight.wake()
            return
        for event in events:
            owner = self.flights.get(event.rid) if isinstance(event.rid, int) else None
            if owner is None:
                continue
            if isinstance(event, Finished):
                owner.end = event
                del self.flights[owner.rid]
            else:
                owner.first = True
            owner.wake()
        self._arm()
