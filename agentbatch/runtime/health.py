"""How it is found out that a worker is back, and who is told that one went or came.

GET /health is asked every 2 s while a worker is out, and at no other time. Any status below 500 brings it back: a
server without /health says 404, and lives. What takes one out is said in `workers`.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

import anyio

from agentbatch.events import WorkerChanged
from agentbatch.runtime.options import BatchOptions
from agentbatch.runtime.workers import Workers

if TYPE_CHECKING:
    from agentbatch.runtime.core import BatchCore

POLL_EVERY_S = 2.0
ANSWER_WITHIN_S = 2.0
"""Wall seconds, whatever a replay's speed-up: a server starts in wall time."""


def health_url(base_url: str) -> str:
    """Return where a worker tells its health: beside `/v1`, not under it."""
    return base_url.removesuffix("/v1") + "/health"


class HealthWatch:
    """Tells a batch's listeners who went out and who came back, and polls whoever is out from a task of its own."""

    def __init__(self, batch: BatchCore, http_client: Callable[[], Any]) -> None:
        self._batch = batch
        self._http_client = http_client

    def changed(self, url: str, live: bool, reason: str) -> None:
        """Announce a change; ask a worker that went out until it answers."""
        batch = self._batch
        reason = batch.redact(reason)
        batch.hub.emit(WorkerChanged(at_s=batch.clock.now(), worker=url, live=live, reason=reason))
        if live:
            batch.hub.notice("worker-back", f"worker {url} is back ({reason})", details={"worker": url})
            return
        left = len(batch.workers.live)
        instead = f"turns go to the {left} that are live" if left else "no worker is live, so turns are tried on all"
        batch.hub.notice(
            "worker-out", f"worker {url} is out ({reason}): {instead}; asked again every {POLL_EVERY_S:g} s until it "
            "answers", details={"worker": url},
        )  # fmt: skip
        if batch.background.running:  # not when a stream outlived its batch: nobody is left to place turns for
            batch.crossing.begin(self._bring_back, url)

    async def _bring_back(self, url: str) -> None:
        due_s = anyio.current_time()
        while True:
            due_s += POLL_EVERY_S  # not at once: an overloaded worker that answered 503 gets a breath
            await anyio.sleep_until(due_s)
            status = await self._ask(health_url(url))
            if status is not None and status < 500:
                self._batch.workers.bring_back(url, f"/health answered {status}")
                return

    async def _ask(self, url: str) -> int | None:
        """Return the HTTP status that `url` answers with; None where there is no answer in time."""
        with anyio.move_on_after(ANSWER_WITHIN_S):
            try:
                response = await self._http_client().get(url, follow_redirects=False)
            except Exception:  # whatever the transport raises: there was no answer
                return None
            return int(response.status_code)
        return None


def watched_workers(batch: BatchCore, options: BatchOptions, http_client: Callable[[], Any]) -> Workers:
    """Build the workers of `batch`, watched; `http_client` gives the client to poll with.

    Raises:
        UsageError: see `Workers`.
    """
    return Workers(
        options.base_urls,
        routing=options.routing,
        alpha=options.alpha,
        random=Random(options.run),  # noqa: S311 - spreads load, guards nothing
        changed=HealthWatch(batch, http_client).changed,
    )
