"""The life of a batch: what it is made of, how it starts and ends, and what its trajectories use of it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Literal, Self

import anyio

from agentbatch.errors import BatchClosed, UsageError
from agentbatch.events import Event, Outcome, RunEnded
from agentbatch.policy.whereabouts import Whereabouts
from agentbatch.runtime import current
from agentbatch.runtime.account import Account
from agentbatch.runtime.admission import Admission
from agentbatch.runtime.background import Background
from agentbatch.runtime.client import TrajectoryClient
from agentbatch.runtime.clients import Clients, UnlabelledSyncClient
from agentbatch.runtime.clock import BatchClock
from agentbatch.runtime.collector import relaxed_collector
from agentbatch.runtime.crossing import Crossing
from agentbatch.runtime.failure import outcome_of
from agentbatch.runtime.gate import Gate
from agentbatch.runtime.health import watched_workers
from agentbatch.runtime.hub import Hub
from agentbatch.runtime.interrupt import drains_on_interrupt, soon
from agentbatch.runtime.labels import Labels
from agentbatch.runtime.lag import LagMeter
from agentbatch.runtime.options import BatchOptions
from agentbatch.runtime.statistics import BatchStatistics, snapshot
from agentbatch.runtime.sync_client import SyncTrajectoryClient
from agentbatch.runtime.sync_trajectory import SyncTrajectory
from agentbatch.runtime.trajectory import Trajectory
from agentbatch.runtime.workers import Workers
from agentbatch.trace.recorder import Recorder

SETTLE_S = 5.0
"""How long the end of a batch waits for tools that run on after they were told to stop, wall seconds."""


class BatchCore:
    """What `AgentBatch` is, without what a harness calls.

    Args:
        options: checked ones. record, on_event, drain_on_interrupt, speedup: see `AgentBatch`.
    """

    def __init__(
        self,
        options: BatchOptions,
        record: str | os.PathLike[str] | None,
        on_event: Callable[[Event], None] | None,
        *,
        drain_on_interrupt: bool,
        speedup: float,
    ) -> None:
        self.options = options
        self.clock = BatchClock(speedup)
        self.hub = Hub(self.clock)
        self.keys = {name: options.order.keys() for name in options.ce}
        self.account = Account()
        self.whereabouts = Whereabouts(options.ce, window_s=max(60.0, 5 * speedup))  # >= 5 s wall
        self.background = Background()
        self.crossing = Crossing(self.background)
        self._lag = LagMeter(self.hub)
        self.labels = Labels(options.run)
        self._workers = watched_workers(self, options, lambda: self._clients.http_client) if options.base_urls else None
        self._clients = Clients(options, self._workers, self.hub)
        self._admission = Admission(options.cs, options.admission, self.labels, self.clock, self.hub)
        self._gates = {
            name: Gate(name, limit, self.clock, self.keys[name].granted) for name, limit in options.ce.items()
        }
        self._record = record
        self.drain_on_interrupt = drain_on_interrupt
        self._entries = 0
        self._state: Literal["new", "open", "closed"] = "new"
        self._outer: BatchCore | None = None
        self._stack = AsyncExitStack()
        if on_event is not None:
            self.hub.add(on_event)

    async def __aenter__(self) -> Self:
        if self._state != "new":
            raise BatchClosed("an AgentBatch was entered twice: make a new one for each `async with`")
        options = self.options
        self.clock.start()
        try:
            if options.base_urls:
                await self._clients.open(self._stack)
            self._stack.enter_context(relaxed_collector(options.cs))
            if self._record is not None:
                recorder = Recorder(self._record, on_error=self._record_failed)
                self._stack.callback(recorder.close)
                self.hub.add(recorder.write)
            if self.drain_on_interrupt:
                self._stack.enter_context(drains_on_interrupt(soon(self.interrupted)))
            await self.background.open()
        except BaseException:
            await self._close()
            raise
        self.background.start_soon(self._lag.run, name="loop lag")
        self.crossing.open()
        self._state = "open"
        current.open_batches.add(self)
        self._outer = current.batch.get()
        current.batch.set(self)
        self.hub.emit(options.started(speedup=self.clock.speedup, started_unix_s=time.time()))
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        active = self._admission.gate.statistics()
        running = active.held - self._admission.outlived
        if running or active.waiting:
            self.hub.notice(
                "closed-early",
                f"the batch ended while {running} trajectories ran and {active.waiting} waited: their next model "
                "call fails; let every batch.trajectory() block end before the batch does",
            )
        self._state = "closed"
        self.crossing.close()
        current.open_batches.discard(self)
        current.batch.set(self._outer)
        try:
            await self._end_background(exc)
        finally:
            now_s = self.clock.now()
            outcome: Outcome = "ok" if exc is None else outcome_of(exc)
            lag = self._lag.overall
            ended = RunEnded(
                at_s=now_s,
                wall_s=now_s / self.clock.speedup,
                outcome=outcome,
                priority_s=self.account.priority_s,
                loop_lag_mean_s=None if lag is None else lag.mean_s,
                loop_lag_worst_s=None if lag is None else lag.worst_s,
            )
            self.hub.emit(ended)
            await self._close()

    async def _end_background(self, leaving: BaseException | None) -> None:
        await self.background.settle(SETTLE_S)
        if self.background.lingering:
            self.hub.notice(
                "abandoned",
                f"{self.background.lingering} tools or threads run on that were told to stop, {SETTLE_S:g} s after the "
                "end of the batch: nothing limits them any more",
            )
        await self.background.close(leaving)
        self.crossing.abandon()

    async def _close(self) -> None:
        with anyio.CancelScope(shield=True):  # closing sockets is bounded, leaving them open is not
            await self._stack.aclose()

    def drain(self) -> None:
        """Admit no more trajectories, and let those that run finish; those that wait end with `BatchDrained`.

        Safe to call again. Whoever waits for `map` gets every result, in order, as soon as the last one has finished.

        Raises:
            BatchClosed: outside the batch's `async with`.
        """
        self.check_open()
        first = not self._admission.gate.closed
        withdrawn = self._admission.drain()
        if first:
            running = self._admission.gate.statistics().held
            self.hub.notice(
                "draining", f"the batch drains: {withdrawn} waiting trajectories are not run, {running} finish"
            )

    def interrupted(self) -> None:
        """Drain at the first Ctrl-C, and say so."""
        if self._state == "open":
            self.hub.notice("interrupted", "Ctrl-C: draining; press it again to stop at once")
            self.drain()

    def stop_threads(self) -> None:
        """Cancel what runs, at the second Ctrl-C: threads hear of it in no other way."""
        self._admission.cancel_running("Ctrl-C")

    def check_open(self) -> None:
        """Raise BatchClosed outside the batch's `async with`, WrongThread outside its event loop."""
        if self._state == "new":
            raise BatchClosed("the batch is not running: use it inside `async with AgentBatch(…) as batch:`")
        if self._state == "closed":
            raise BatchClosed("the batch has ended: make a new AgentBatch for more work")
        self.crossing.check_loop()

    # -- what trajectories use ----------------------------------------------------------------------------------

    @property
    def workers(self) -> Workers:
        """The worker URLs and their requests in flight.

        Raises:
            UsageError: the batch has no base_url.
        """
        if self._workers is None:
            raise UsageError("this batch has no server: give AgentBatch(base_url=…) or set OPENAI_BASE_URL")
        return self._workers

    def gate(self, resource: str) -> Gate:
        """Return the gate of an environment resource.

        Raises:
            UsageError: there is no such resource.
        """
        try:
            return self._gates[resource]
        except KeyError:
            names = ", ".join(map(repr, self._gates))
            raise UsageError(f"no environment resource {resource!r}: it has {names}; add it to ce={{…}}") from None

    def build_client(self, trajectory: Trajectory) -> TrajectoryClient:
        """Build the labelled client of one trajectory around the shared connection pool."""
        self.check_open()
        return self._clients.build(trajectory)

    def statistics(self) -> BatchStatistics:
        """Return what the batch does right now."""
        return snapshot(
            run=self.options.run,
            now_s=self.clock.now(),
            admission=self._admission,
            gates=self._gates,
            workers=self._workers,
            account=self.account,
            whereabouts=self.whereabouts,
            notices=self.hub.notice_count,
            lag=self._lag,
        )

    def build_sync_client(self, trajectory: SyncTrajectory) -> SyncTrajectoryClient:
        """Build the labelled client that one trajectory uses in threads."""
        return self._clients.build_sync(trajectory)

    def build_plain_sync_client(self) -> UnlabelledSyncClient:
        """Build an unlabelled client for threads."""
        return self._clients.plain_sync(self.crossing)

    def next_entry(self) -> int:
        """Return the next global entry number, e_j of Eq. 16."""
        self._entries += 1
        return self._entries

    def _record_failed(self, error: Exception) -> None:
        self.hub.notice("record-failed", str(error), once=True)

    def redact(self, text: str) -> str:
        """Take the API key out of `text`."""
        key = self.options.api_key
        return text if key == "EMPTY" else text.replace(key, "[api key]")

    def __repr__(self) -> str:
        state = "draining" if self._state == "open" and self._admission.gate.closed else self._state
        ce = {name: gate.statistics().capacity for name, gate in self._gates.items()}
        cs = self._admission.gate.statistics().capacity
        return f"<{type(self).__name__} {self.options.run!r} {state} cs={cs} ce={ce}>"
