"""What several test files here share."""

from collections.abc import Callable, Iterable
from typing import Any

import anyio
import pytest

from agentbatch import AgentBatch
from agentbatch.events import AttemptFailed, Event, JobEnded, TurnEnded, WorkerChanged
from agentbatch.policy.lbch import Ring
from agentbatch.testing import Answer, Received, ScriptedServer

SDK_LEAVES_GENERATORS = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""On trio, the SDK and httpx leave the generators of a streamed reply half-run, without agentbatch as well; trio warns
when they are collected."""

ASK: Any = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


def turns(events: list[Event]) -> list[TurnEnded]:
    return [event for event in events if isinstance(event, TurnEnded)]


def attempts(events: list[Event]) -> list[AttemptFailed]:
    return [event for event in events if isinstance(event, AttemptFailed)]


def jobs(events: list[Event]) -> list[JobEnded]:
    return [event for event in events if isinstance(event, JobEnded)]


async def until(holds: Callable[[], bool]) -> None:
    """Wait for something that another process or connection brings about."""
    with anyio.fail_after(10):
        while not holds():  # noqa: ASYNC110 - nobody here to set an event
            await anyio.sleep(0.005)


def assert_nothing_held(batch: AgentBatch) -> None:
    statistics = batch.statistics()
    for gate in (statistics.admission, *statistics.environment.values()):
        assert (gate.held, gate.waiting) == (0, 0)
    assert statistics.turns_in_flight == 0


def in_flight(batch: AgentBatch) -> dict[str, int]:
    """Turns in flight on each worker."""
    return {url: worker.in_flight for url, worker in batch.statistics().workers.items()}


def in_order(*answers: Answer) -> Callable[[Received], Answer]:
    left = list(answers)
    return lambda received: left.pop(0)


def changes(events: list[Event], url: str | None = None) -> list[bool]:
    """Whether `url`, or any worker, was live after each of its changes."""
    return [one.live for one in events if isinstance(one, WorkerChanged) and url in (None, one.worker)]


def homes(urls: list[str], keys: Iterable[object], run: str = "r") -> dict[str, str]:
    """The home of each key's trajectory."""
    ring = Ring(urls)
    return {str(key): ring.home(f"{run}-{key}") for key in keys}


def labels_seen(server: ScriptedServer) -> set[str]:
    return {one.headers["x-smg-routing-key"] for one in server.received}
