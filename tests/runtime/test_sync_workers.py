"""Threads and several workers: one that dies under a thread's turn is out, and comes back."""

from collections.abc import Callable
from typing import Any

import pytest
from runtime_helpers import ASK, changes, turns
from sync_helpers import Served, assert_nothing_held, served, wait_until

from agentbatch import SyncAgentBatch
from agentbatch.events import Event
from agentbatch.runtime import health
from agentbatch.testing import Answer, Received


def ask(client: Any) -> None:
    client.chat.completions.create(**ASK)


def read_a_stream(client: Any) -> None:
    try:
        list(client.chat.completions.create(**ASK, stream=True))
    except Exception as error:
        assert "onnection" in str(error) or "peer" in str(error), error  # noqa: PT017 - seen at some tries only


BROKEN = Answer(text="a b c", cut_after=1)


@pytest.mark.parametrize(("use", "bad"), [(ask, Answer(status=503)), (read_a_stream, BROKEN)])
def test_a_worker_that_fails_a_thread_is_out_and_comes_back(
    use: Callable[[Any], None], bad: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "POLL_EVERY_S", 0.05)
    events: list[Event] = []
    failing: list[Served] = []

    def script(received: Received) -> Answer:
        return bad if failing and received.headers["host"] in failing[0].url else Answer()

    with served(script) as one, served(script) as two:
        urls = [one.url, two.url]
        with SyncAgentBatch(cs=4, ce=1, base_url=urls, on_event=events.append) as batch:
            failing.append(two)
            results = batch.map(lambda trajectory, task: use(trajectory.client), range(20))
            assert [result.error for result in results if not result.ok] == []
            assert changes(events, two.url)[0] is False
            assert changes(events, one.url) == []
            failing.clear()
            wait_until(lambda: batch.statistics().workers[two.url].live)
            assert_nothing_held(batch)
    assert len(turns(events)) == 20
