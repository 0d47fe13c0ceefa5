"""`AgentBatch`: runs a batch of agent trajectories under two limits, and keeps account of them.

Source: spec §2 (CS, CE, CAAS), §3 (labels). Decisions are in `policy/`; this file wires them to clients and events.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Literal, TypeVar

import anyio

from agentbatch.events import Event, LimitsChanged
from agentbatch.policy.admission import Admission
from agentbatch.policy.caas import EnvironmentPolicy
from agentbatch.policy.lbch import Routing
from agentbatch.runtime.admission import Pair
from agentbatch.runtime.clients import UnlabelledClient
from agentbatch.runtime.core import BatchCore
from agentbatch.runtime.in_thread import solve_in_thread
from agentbatch.runtime.options import Profile, check_options
from agentbatch.runtime.results import Result
from agentbatch.runtime.retry import RetryPolicy
from agentbatch.runtime.sync_trajectory import SyncTrajectory
from agentbatch.runtime.tool import check_plain
from agentbatch.runtime.trajectory import Trajectory
from agentbatch.runtime.transport import check_descriptors

T = TypeVar("T")
R = TypeVar("R")


class AgentBatch(BatchCore):
    """A batch of agent trajectories: an admission limit, an environment limit, labelled clients, one account of it all.

    Use it as `async with AgentBatch(cs=50, ce=3, base_url=…) as batch:`; runs on asyncio and trio.

    Args:
        cs: how many trajectories are active at once; each keeps its slot from admission to its end.
        ce: how many environment jobs run at once; a mapping names resources, each with its own limit and queue.
        base_url: OpenAI-compatible URL of the server, or several worker URLs, among which each turn is placed.
            Default: the OPENAI_BASE_URL variable; without either, `traj.client` is not available.
        api_key: sent as bearer token; default the OPENAI_API_KEY variable. Never logged, recorded or shown.
        env_policy: order of waiting environment jobs: "caas" (Eq. 13-16) or "fcfs"; beyond the paper "depth", deepest
            chain first, and, experimental, "slow-step", longest mean step first.
        band_s: B of Eq. 13, seconds; "auto" follows each queue's recent waits, from 30 up, with "depth" from 300. By
            default 30 for "caas" and "auto" for "depth"; the others have no bands. bucket_s: dI of Eq. 15.
        admission: "fifo", as submitted, or beyond the paper "longest-first", by `profile`.
        profile: how long tasks took before: path of a run file or a trace, or seconds by task key. Keys it does not
            know count as its median.
        unified: one gate for both, the baseline of Eq. 11: CS becomes min(cs, smallest ce).
        record: path of a run file to write; an existing file is an error.
        on_event: called with every event; one that raises is reported once and dropped.
        run: name of the run, part of every label; default eight random hex digits.
        retries: how often a model call that may succeed later is tried again, or a `RetryPolicy`.
        timeout_s: wall seconds without a byte after which an attempt of a model call fails.
        turn_timeout_s: longest model call, from launch to last byte, retries included; default unlimited.
        environment_timeout_s: longest environment job, from the grant of its slot; a mapping names resources.
        trajectory_timeout_s: longest trajectory, from its admission. What a time-out ends is marked in its result.
        label_headers: further headers that carry the label, such as "X-Session-ID" or "X-Dynamo-Session-ID".
        drain_on_interrupt: the first Ctrl-C drains, the second stops; False leaves SIGINT alone.
        routing: how, among several workers: "lbch", home unless that is over its share; "consistent-hash", home
            whatever its load; "random", seeded with `run`. Workers found dead are out until they answer again.
        alpha: load bound of "lbch", >= 1 (Eq. 9).
        speedup: trace seconds per wall second, for replays against a sped-up server.

    Raises:
        UsageError: an option is out of range, at construction. TraceError: the profile does not read.
        StartUpError: on entry, when the server cannot be reached or file descriptors are too few.
    """

    def __init__(
        self,
        cs: int,
        ce: int | Mapping[str, int] = 1,
        *,
        base_url: str | Sequence[str] | None = None,
        api_key: str | None = None,
        env_policy: EnvironmentPolicy = "caas",
        band_s: float | Literal["auto"] | None = None,
        bucket_s: float = 1.0,
        admission: Admission = "fifo",
        profile: Profile = None,
        unified: bool = False,
        record: str | os.PathLike[str] | None = None,
        on_event: Callable[[Event], None] | None = None,
        run: str | None = None,
        retries: int | RetryPolicy = 2,
        timeout_s: float = 600.0,
        turn_timeout_s: float | None = None,
        environment_timeout_s: float | Mapping[str, float] | None = None,
        trajectory_timeout_s: float | None = None,
        label_headers: Sequence[str] = (),
        drain_on_interrupt: bool = True,
        routing: Routing = "lbch",
        alpha: float = 1.25,
        speedup: float = 1.0,
    ) -> None:
        options = check_options(
            run=run, cs=cs, ce=ce, unified=unified, env_policy=env_policy, band_s=band_s, bucket_s=bucket_s,
            admission=admission, profile=profile,
            base_url=base_url, api_key=api_key, retries=retries, timeout_s=timeout_s, turn_timeout_s=turn_timeout_s,
            environment_timeout_s=environment_timeout_s, trajectory_timeout_s=trajectory_timeout_s,
            label_headers=label_headers, routing=routing, alpha=alpha,
        )  # fmt: skip
        super().__init__(options, record, on_event, drain_on_interrupt=drain_on_interrupt, speedup=speedup)

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
        items, pairs = self._submit(tasks, key)
        results: dict[int, Result[R]] = {}
        await self._admission.run_all(solve, items, pairs, results.__setitem__)
        return [results[index] for index in range(len(items))]

    async def map_sync(
        self, solve: Callable[[SyncTrajectory, T], R], tasks: Iterable[T], *, key: Callable[[T], object] | None = None
    ) -> list[Result[R]]:
        """Like `map`, for a plain function: each `solve(trajectory, task)` has a worker thread of its own, CS at once.

        Raises:
            UsageError: `solve` is a coroutine function, or two tasks have the same key; nothing has run then.
            BatchClosed: outside the batch's `async with`.
        """
        check_plain(solve, "map_sync")
        return await self.map(partial(solve_in_thread, solve), tasks, key=key)

    @asynccontextmanager
    async def as_completed(
        self,
        solve: Callable[[Trajectory, T], Awaitable[R]],
        tasks: Iterable[T],
        *,
        key: Callable[[T], object] | None = None,
    ) -> AsyncIterator[AsyncIterator[Result[R]]]:
        """Run tasks as `map` does; `async with … as results: async for result in results:` gives each as it ends.

        A slow reader holds nothing up. Leaving the block early cancels the trajectories that have not ended.

        Raises:
            UsageError, BatchClosed: as `map`, on entry.
        """
        items, pairs = self._submit(tasks, key)
        send, receive = anyio.create_memory_object_stream[Result[R]](len(items))
        error: Exception | None = None

        def ended(_: int, result: Result[R]) -> None:
            with suppress(anyio.BrokenResourceError):  # its reader has closed `results`, and wants no more
                send.send_nowait(result)

        async def run() -> None:
            with send:
                await self._admission.run_all(solve, items, pairs, ended)

        with receive:
            async with anyio.create_task_group() as group:
                group.start_soon(run)
                try:
                    yield receive
                except Exception as raised:  # the group would wrap it
                    error = raised
                group.cancel_scope.cancel()
        if error is not None:
            raise error

    def _submit(self, tasks: Iterable[T], key: Callable[[T], object] | None) -> tuple[list[T], list[Pair]]:
        self.check_open()
        items = list(tasks)
        keys = [str(index if key is None else key(item)) for index, item in enumerate(items)]
        return items, self._admission.submit(self, keys, given=key is not None)

    @asynccontextmanager
    async def trajectory(self, key: object) -> AsyncIterator[Trajectory]:
        """Run a block as one trajectory, for harnesses that own their loop; what the block raises passes through.

        Raises:
            UsageError: `key` belongs to a trajectory that still runs.
            SlotConflict: called inside another trajectory of this batch.
            TrajectoryCancelled: `Trajectory.cancel` ended the block. BatchDrained: the batch admits no more.
            TrajectoryTimeout: `trajectory_timeout_s` ended the block.
        """
        self.check_open()
        [(trajectory, ticket)] = self._admission.submit(self, [str(key)])
        async with self._admission.admitted(trajectory, ticket):
            yield trajectory

    @contextmanager
    def listen(self, hook: Callable[[Event], None]) -> Iterator[None]:
        """Call `hook` with every event for as long as the block runs; one that raises is reported once and dropped."""
        self.hub.add(hook)
        try:
            yield
        finally:
            self.hub.remove(hook)

    def resize(self, *, cs: int | None = None, ce: int | Mapping[str, int] | None = None) -> None:
        """Change limits while the batch runs. Slots held stay held: a smaller limit is reached as they come back.

        Args:
            cs: new admission limit. ce: new limit of "default", or of the resources named.

        Raises:
            UsageError: a limit below 1, an unknown resource; or one limit alone of a unified batch, which has but one.
            StartUpError: file descriptors are too few for the new CS.
            BatchClosed: outside the batch's `async with`.
        """
        self.check_open()
        limits = self.options.check_resize(cs, ce)
        if cs is not None:
            if self._workers is not None:
                check_descriptors(cs)
            self._admission.gate.resize(cs)
        for name, limit in limits.items():
            self._gates[name].resize(limit)
        now = self.statistics()
        self.whereabouts.begin_window(now.now_s)
        environment = {name: slots.capacity for name, slots in now.environment.items()}
        self.hub.emit(LimitsChanged(at_s=now.now_s, cs=now.admission.capacity, ce=environment))

    def plain_client(self) -> UnlabelledClient:
        """Return an unlabelled client around the same pool, for calls that belong to no trajectory.

        Raises:
            UsageError: the batch has no base_url.
        """
        self.check_open()
        return self._clients.plain()
