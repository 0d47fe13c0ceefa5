"""What the tests of synchronous harnesses share: a scripted server on a thread of its own, and patience."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from anyio.from_thread import BlockingPortal, start_blocking_portal

from agentbatch import SyncAgentBatch
from agentbatch.testing import ScriptedServer
from agentbatch.testing.scripted import Script


class Served:
    """A scripted server as another thread sees it."""

    def __init__(self, portal: BlockingPortal, server: ScriptedServer) -> None:
        self.server = server
        self.url = server.url
        self._portal = portal

    @property
    def labels(self) -> list[str]:
        return [received.headers["x-smg-routing-key"] for received in tuple(self.server.received)]


@contextmanager
def served(script: Script | None = None, **options: Any) -> Iterator[Served]:
    with (
        start_blocking_portal("asyncio") as portal,
        portal.wrap_async_context_manager(ScriptedServer(script, **options)) as server,
    ):
        yield Served(portal, server)


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait in a thread for something that another one brings about."""
    patience = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < patience, "it did not come about"
        time.sleep(0.002)


def assert_nothing_held(batch: SyncAgentBatch) -> None:
    statistics = batch.statistics()
    for gate in (statistics.admission, *statistics.environment.values()):
        assert (gate.held, gate.waiting) == (0, 0)
    assert statistics.turns_in_flight == 0
