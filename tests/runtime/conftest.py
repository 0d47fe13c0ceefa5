"""Fixtures of the runtime's tests."""

import signal
from collections.abc import Iterator
from types import SimpleNamespace

import anyio
import anyio.lowlevel
import pytest
from sync_helpers import Served, served

from agentbatch.runtime import health, retry
from agentbatch.testing import Answer


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C works, also where these tests were started in the background, which makes a shell switch it off."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Retries do not really wait; gives what they would have waited."""
    asked: list[float] = []

    async def sleep(seconds: float) -> None:
        asked.append(seconds)
        await anyio.lowlevel.checkpoint()

    monkeypatch.setattr(retry, "anyio", SimpleNamespace(sleep=sleep))
    return asked


@pytest.fixture
def quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that is out is asked every 10 ms."""
    monkeypatch.setattr(health, "POLL_EVERY_S", 0.01)


@pytest.fixture
def four_words() -> Iterator[Served]:
    with served(lambda received: Answer(text="a b c d")) as server:
        yield server
