"""The clients of a batch: one connection pool, a labelled client per trajectory, an unlabelled one for the rest."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from openai import AsyncOpenAI, OpenAI

from agentbatch.errors import UsageError
from agentbatch.runtime.client import TrajectoryClient
from agentbatch.runtime.hub import Hub
from agentbatch.runtime.options import BatchOptions
from agentbatch.runtime.preflight import check_reachable
from agentbatch.runtime.sync_client import SyncPool, SyncTrajectoryClient
from agentbatch.runtime.transport import build_http_client, check_descriptors, runs_on_asyncio, share_platform

if TYPE_CHECKING:
    from agentbatch.runtime.crossing import Crossing
    from agentbatch.runtime.sync_trajectory import SyncTrajectory
    from agentbatch.runtime.trajectory import Trajectory
    from agentbatch.runtime.workers import Workers


class UnlabelledClient(AsyncOpenAI):
    """An `AsyncOpenAI` for calls that belong to no trajectory; its first request says that it is not labelled.

    SGLang's gateway hashes the Authorization header where there is no label, so that all such calls share one worker.
    """

    def __init__(self, *, hub: Hub, **options: Any) -> None:
        self._hub = hub
        super().__init__(**options)

    async def request(self, cast_to: Any, options: Any, **how: Any) -> Any:
        """Send one request as it is."""
        announce_unlabelled(self._hub)
        return await super().request(cast_to, options, **how)

    def copy(self, *, _extra_kwargs: Mapping[str, Any] = {}, **options: Any) -> UnlabelledClient:
        """Copy with other options, as in the SDK."""
        return super().copy(_extra_kwargs={"hub": self._hub, **_extra_kwargs}, **options)

    with_options = copy

    async def close(self) -> None:
        """Do nothing: the batch closes the shared connection pool when it ends."""


class UnlabelledSyncClient(OpenAI):
    """The same for threads. Its first request says that it is not labelled."""

    def __init__(self, *, crossing: Crossing, hub: Hub, **options: Any) -> None:
        self._crossing = crossing
        self._hub = hub
        super().__init__(**options)

    def request(self, cast_to: Any, options: Any, **how: Any) -> Any:
        """Send one request as it is.

        Raises:
            WrongThread: called on the event loop's thread. BatchClosed: the batch has ended.
        """
        self._crossing.check_thread()
        self._crossing.post(announce_unlabelled, self._hub)
        return super().request(cast_to, options, **how)

    def copy(self, *, _extra_kwargs: Mapping[str, Any] = {}, **options: Any) -> UnlabelledSyncClient:
        """Copy with other options, as in the SDK."""
        extra = {"crossing": self._crossing, "hub": self._hub, **_extra_kwargs}
        return super().copy(_extra_kwargs=extra, **options)

    with_options = copy

    def close(self) -> None:
        """Do nothing: the batch closes the shared connection pool when it ends."""


def announce_unlabelled(hub: Hub) -> None:
    """Say once what such calls are not."""
    hub.notice(
        "unlabelled",
        "model calls were made through plain_client(), outside any trajectory: they carry no label, are not timed "
        "and not counted, and a gateway may send them all to one worker",
        once=True,
    )


class Clients:
    """Builds clients around one connection pool, which `open` makes and the given stack closes."""

    def __init__(self, options: BatchOptions, workers: Workers | None, hub: Hub) -> None:
        self._options = options
        self._workers = workers
        self._hub = hub
        self._http_client: Any = None
        self._sync_pool = SyncPool(options.cs, options.timeout_s)
        self._root: AsyncOpenAI | None = None

    async def open(self, stack: AsyncExitStack) -> None:
        """Make the pool and ask every server whether it is there.

        Raises:
            StartUpError: file descriptors are too few for CS, or a server cannot be connected to.
        """
        options = self._options
        check_descriptors(options.cs)
        self._http_client = build_http_client(options.cs, options.timeout_s)
        stack.push_async_callback(self._http_client.aclose)
        stack.callback(self._sync_pool.close)
        self._root = AsyncOpenAI(**self._client_options())
        await check_reachable(self._root, options.base_urls, self._hub)
        if not runs_on_asyncio():
            self._hub.notice("transport", "aiohttp does not run on trio: model calls use the SDK's slower transport")

    def build(self, trajectory: Trajectory) -> TrajectoryClient:
        """Build the labelled client of one trajectory."""
        client = TrajectoryClient(trajectory=trajectory, **self._client_options())
        share_platform(self._root, client)
        return client

    def build_sync(self, trajectory: SyncTrajectory) -> SyncTrajectoryClient:
        """Build the labelled client that one trajectory uses in threads."""
        options = {**self._client_options(), "http_client": self._sync_pool.get()}
        return SyncTrajectoryClient(trajectory=trajectory, **options)

    def plain_sync(self, crossing: Crossing) -> UnlabelledSyncClient:
        """Build an unlabelled client for threads."""
        options = {**self._client_options(), "http_client": self._sync_pool.get()}
        return UnlabelledSyncClient(crossing=crossing, hub=self._hub, **options)

    def plain(self) -> UnlabelledClient:
        """Build an unlabelled client."""
        client = UnlabelledClient(hub=self._hub, **self._client_options())
        share_platform(self._root, client)
        return client

    @property
    def http_client(self) -> Any:
        """The connection pool."""
        return self._http_client

    def _client_options(self) -> dict[str, Any]:
        if self._workers is None:
            raise UsageError("this batch has no server: give AgentBatch(base_url=…) or set OPENAI_BASE_URL")
        return {
            "api_key": self._options.api_key,
            "base_url": self._workers.urls[0],
            "http_client": self._http_client,
            "max_retries": self._options.retries.attempts - 1,
            "timeout": self._http_client.timeout,
        }
