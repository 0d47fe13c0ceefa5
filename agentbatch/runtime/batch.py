"""`AgentBatch`: runs a batch of agent trajectories under two limits, and keeps account of them.

Source: spec §2 (CS, CE, CAAS), §3 (labels). Decisions are in `policy/`; this file wires them to clients and events.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Any, Literal, TypeVar, cast

import anyio
from anyio.abc import TaskGroup
from openai import AsyncOpenAI

from agentbatch.errors import BatchClosed, UsageError
from agentbatch.events import Event, Outcome, RunEnded
from agentbatch.policy.lbch import Routing
from agentbatch.runtime import current
from agentbatch.runtime.account import Account
from agentbatch.runtime.admission import Admission
from agentbatch.runtime.background import close_background
from agentbatch.runtime.client import TrajectoryClient
from agentbatch.runtime.clock import BatchClock
from agentbatch.runtime.collector import relaxed_collector
from agentbatch.runtime.gate import Gate
from agentbatch.runtime.health import watched_workers
from agentbatch.runtime.hub import Hub
from agentbatch.runtime.options import check_options
from agentbatch.runtime.preflight import check_reachable
from agentbatch.runtime.results import Result
from agentbatch.runtime.statistics import BatchStatistics, snapshot
from agentbatch.runtime.trajectory import Trajectory
from agentbatch.runtime.transport import build_http_client, check_descriptors, runs_on_asyncio, share_platform
from agentbatch.runtime.turn import outcome_of
from agentbatch.runtime.workers import Workers
from agentbatch.trace.recorder import Recorder

T = TypeVar("T")
R = TypeVar("R")


class AgentBatch:
    """A batch of agent trajectories: an admission limit, an environment limit, labelled clients, one account of it all.

    Use it as `async with AgentBatch(cs=50, ce=3, base_url=…) as batch:`; runs on asyncio and trio.

    Args:
        cs: how many trajectories are active at once; each keeps its slot from admission to its end.
        ce: how many environment jobs run at once; a mapping names resources, each with its own limit and queue.
        base_url: OpenAI-compatible URL of the server, or several worker URLs, among which each turn is placed.
            Default: the OPENAI_BASE_URL variable; without either, `traj.client` is not available.
        api_key: sent as bearer token; default the OPENAI_API_KEY variable. Never logged, recorded or shown.
        env_policy: order of waiting environment jobs: "caas" (Eq. 13-16) or "fcfs".
        band_s: B of Eq. 13, seconds. bucket_s: dI of Eq. 15, seconds.
        unified: one gate for both, the baseline of Eq. 11: CS becomes min(cs, smallest ce).
        record: path of a run file to write; an existing file is an error.
        on_event: called with every event; one that raises is reported once and dropped.
        run: name of the run, part of every label; default eight random hex digits.
        retries: how often a model call that may succeed later is tried again.
        timeout_s: seconds without a byte after which a model call fails.
        routing: how, among several workers: "lbch", home unless that is over its share; "consistent-hash", home
            whatever its load; "random", seeded with `run`. Workers found dead are out until they answer again.
        alpha: load bound of "lbch", >= 1 (Eq. 9).
        speedup: trace seconds per wall second, for replays against a sped-up server.

    Raises:
        UsageError: an option is out of range, at construction.
        StartUpError: on entry, when the server cannot be reached or file descriptors are too few.
    """

    def __init__(
        self,
        cs: int,
        ce: int | Mapping[str, int] = 1,
        *,
        base_url: str | Sequence[str] | None = None,
        api_key: str | None = None,
        env_policy: Literal["caas", "fcfs"] = "caas",
        band_s: float = 30.0,
        bucket_s: float = 1.0,
        unified: bool = False,
        record: str | os.PathLike[str] | None = None,
        on_event: Callable[[Event], None] | None = None,
        run: str | None = None,
        retries: int = 2,
        timeout_s: float = 600.0,
        routing: Routing = "lbch",
        alpha: float = 1.25,
        speedup: float = 1.0,
    ) -> None:
        self.options = options = check_options(
            run=run, cs=cs, ce=ce, unified=unified, env_policy=env_policy, band_s=band_s, bucket_s=bucket_s,
            base_url=base_url, api_key=api_key, retries=retries, timeout_s=timeout_s, routing=routing, alpha=alpha,
        )  # fmt: skip
        self.clock = BatchClock(speedup)
        self.hub = Hub(self.clock)
        self.order = options.order
        self.account = Account()
        self.background: TaskGroup | None = None
        """What runs beside the trajectories, such as polling; cancelled when the batch ends. Nothing in it raises."""
        self._workers = watched_workers(self, options, lambda: self._http_client) if options.base_urls else None
        self._admission = Admission(options.run, options.cs, self.clock, self.hub)
        self._gates = {name: Gate(name, limit, self.clock) for name, limit in options.ce.items()}
        self._http_client: Any = None
        self._root: Any = None
        self._record = record
        self._entries = 0
        self._state: Literal["new", "open", "closed"] = "new"
        self._outer: AgentBatch | None = None
        self._stack = AsyncExitStack()
        if on_event is not None:
            self.hub.add(on_event)

    async def __aenter__(self) -> AgentBatch:
        if self._state != "new":
            raise BatchClosed("an AgentBatch was entered twice: make a new one for each `async with`")
        options = self.options
        self.clock.start()
        try:
            if options.base_urls:
                check_descriptors(options.cs)
                self._http_client = build_http_client(options.cs, options.timeout_s)
                self._stack.push_async_callback(self._http_client.aclose)
                self._root = AsyncOpenAI(**self._client_options())
                await check_reachable(self._root, options.base_urls, self.hub)
            self._stack.enter_context(relaxed_collector(options.cs))
            if self._record is not None:
                recorder = Recorder(self._record, on_error=self._record_failed)
                self._stack.callback(recorder.close)
                self.hub.add(recorder.write)
        except BaseException:
            await self._close()
            raise
        self.background = await anyio.create_task_group().__aenter__()
        self._state = "open"
        self._outer = current.batch.get()
        current.batch.set(self)
        self.hub.emit(options.started(speedup=self.clock.speedup, started_unix_s=time.time()))
        if options.base_urls and not runs_on_asyncio():
            self.hub.notice("transport", "aiohttp does not run on trio: model calls use the SDK's slower transport")
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        active = self._admission.gate.statistics()
        if active.held or active.waiting:
            self.hub.notice(
                "closed-early",
                f"the batch ended while {active.held} trajectories ran and {active.waiting} waited: their next model "
                "call fails; let every batch.trajectory() block end before the batch does",
            )
        self._state = "closed"
        current.batch.set(self._outer)
        group, self.background = self.background, None
        try:
            if group is not None:
                await close_background(group, exc)
        finally:
            now_s = self.clock.now()
            outcome: Outcome = "ok" if exc is None else outcome_of(exc)
            wall_s = now_s / self.clock.speedup
            self.hub.emit(RunEnded(at_s=now_s, wall_s=wall_s, outcome=outcome, priority_s=self.account.priority_s))
            await self._close()

    async def _close(self) -> None:
        with anyio.CancelScope(shield=True):  # closing sockets is bounded, leaving them open is not
            await self._stack.aclose()

    # -- running trajectories -----------------------------------------------------------------------------------

    async def map(
        self,
        solve: Callable[[Trajectory, T], Awaitable[R]],
        tasks: Iterable[T],
        *,
        key: Callable[[T], object] | None = None,
    ) -> list[Result[R]]:
        """Run `solve(trajectory, task)` for every task and return `Completed` or `Failed` for each, in input order.

        Args:
            solve: the harness's step loop; its slot is held until it returns.
            tasks: any finite iterable.
            key: gives each task a key, unique in the call; default its position. A key that ran before in this batch
                runs again under a label ending in `~2` and so on.

        Raises:
            UsageError: two tasks have the same key; nothing has run then.
            BatchClosed: outside the batch's `async with`.
        """
        self.check_open()
        items = list(tasks)
        keys = [str(index if key is None else key(item)) for index, item in enumerate(items)]
        return await self._admission.run_all(solve, items, self._admission.submit(self, keys))

    @asynccontextmanager
    async def trajectory(self, key: object) -> AsyncIterator[Trajectory]:
        """Run a block as one trajectory, for harnesses that own their loop; what the block raises passes through.

        Raises:
            UsageError: `key` belongs to a trajectory that still runs.
            SlotConflict: called inside another trajectory of this batch.
            TrajectoryCancelled: `Trajectory.cancel` ended the block.
        """
        self.check_open()
        [(trajectory, ticket)] = self._admission.submit(self, [str(key)])
        async with self._admission.admitted(trajectory, ticket):
            yield trajectory

    def check_open(self) -> None:
        """Raise BatchClosed outside the batch's `async with`."""
        if self._state == "new":
            raise BatchClosed("the batch is not running: use it inside `async with AgentBatch(…) as batch:`")
        if self._state == "closed":
            raise BatchClosed("the batch has ended: make a new AgentBatch for more work")

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
        client = TrajectoryClient(trajectory=trajectory, **self._client_options())
        share_platform(self._root, client)
        return client

    def plain_client(self) -> AsyncOpenAI:
        """Return an unlabelled client around the same pool, for calls that belong to no trajectory; do not close it."""
        self.check_open()
        _ = self.workers  # raises where the batch has no server
        return cast(AsyncOpenAI, self._root)

    def _client_options(self) -> dict[str, Any]:
        return {
            "api_key": self.options.api_key,
            "base_url": self.workers.urls[0],
            "http_client": self._http_client,
            "max_retries": self.options.retries,
            "timeout": self._http_client.timeout,
        }

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

    def statistics(self) -> BatchStatistics:
        """Return what the batch does right now."""
        return snapshot(
            run=self.options.run,
            now_s=self.clock.now(),
            admission=self._admission,
            gates=self._gates,
            workers=self._workers,
            account=self.account,
            notices=self.hub.notice_count,
        )

    def __repr__(self) -> str:
        options = self.options
        return f"<AgentBatch {options.run!r} {self._state} cs={options.cs} ce={dict(options.ce)}>"
