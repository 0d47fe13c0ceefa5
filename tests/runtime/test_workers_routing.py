"""Which of several workers takes a turn: the bound of LBCH as servers see it, and the ways to compare it with."""

import math
from collections import Counter
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runtime_helpers import ASK, homes, in_flight, labels_seen, turns

from agentbatch import AgentBatch
from agentbatch.events import Event, RunStarted
from agentbatch.policy.lbch import Ring
from agentbatch.runtime.workers import Workers
from agentbatch.testing import Answer, Received, ScriptedServer

URLS = [f"http://worker-{n}:30000/v1" for n in range(4)]


async def ask_once(trajectory: Any, _: Any) -> str:
    reply = await trajectory.client.chat.completions.create(**ASK)
    return str(reply.choices[0].message.content)


@pytest.mark.asyncio
async def test_a_burst_of_64_new_labels_overfills_no_worker() -> None:
    """Case 40, llm-d#2515: ties in a burst all picked the same pod; here as the servers saw it."""

    def script(received: Received) -> Answer:
        return Answer(text="a b", stall_after=1)  # held until the client has gone

    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(ScriptedServer(script)) for _ in URLS]
        batch = await stack.enter_async_context(AgentBatch(cs=64, ce=1, base_url=[one.url for one in servers]))
        all_held = anyio.Event()

        async def solve(trajectory: Any, _: int) -> None:
            async with await trajectory.client.chat.completions.create(**ASK, stream=True) as stream:
                await anext(stream)
                if sum(server.in_flight for server in servers) == 64:
                    all_held.set()
                await all_held.wait()

        results = await batch.map(solve, range(64))
        assert all(result.ok for result in results)
        peaks = [server.peak for server in servers]
        assert sum(peaks) == 64
        assert max(peaks) <= math.ceil(1.25 * 16) + 1


@given(
    steps=st.lists(st.tuples(st.sampled_from(["take", "take", "end", "out", "back"]), st.integers(0, 30)), max_size=99),
    routing=st.sampled_from(["lbch", "consistent-hash", "random"]),
    alpha=st.sampled_from([1.0, 1.25, 2.0]),
)
def test_no_pick_is_over_the_bound_or_out_while_another_would_do(
    steps: list[tuple[str, int]], routing: Any, alpha: float
) -> None:
    """Case 39, prime-rl#3255 and verl#6533: sticky to a saturated worker, or to a dead one."""
    workers, ring = Workers(URLS, routing=routing, alpha=alpha, random=Random(1)), Ring(URLS)
    running: list[str] = []
    for what, n in steps:
        if what == "take":
            field = workers.live or frozenset(URLS)
            load = Counter(running)
            url = workers.take(f"r-{n}")
            assert url in field
            if routing == "lbch":
                assert load[url] * len(field) <= alpha * (sum(load[one] for one in field) + 1)
            if routing == "consistent-hash":
                assert url == ring.home(f"r-{n}", field)
            running.append(url)
        elif what == "end" and running:
            workers.give_back(running.pop(n % len(running)))
        elif what == "out":
            others = workers.live - {URLS[n % 4]}
            assert workers.blame(URLS[n % 4], ConnectionRefusedError()) is bool(others)
        elif what == "back":
            workers.bring_back(URLS[n % 4], "/health answered 200")
        assert {url: one.in_flight for url, one in workers.statistics().items()} == {
            url: running.count(url) for url in URLS
        }
    for url in running:
        workers.give_back(url)
    assert workers._total == 0


@pytest.mark.asyncio
async def test_labels_alike_at_the_front_never_mix() -> None:
    """Case 38, vLLM router#219: session-1 matched session-12."""
    keys = ["session-1", "session-12", "session-123", "session", "session-2", "session-21"]
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(ScriptedServer()) for _ in URLS]
        urls = [one.url for one in servers]
        async with AgentBatch(cs=1, ce=1, base_url=urls, run="r") as batch:

            async def thrice(trajectory: Any, _: str) -> None:
                for _ in range(3):
                    await ask_once(trajectory, None)

            await batch.map(thrice, keys, key=str)
        expected = homes(urls, keys)
        for server in servers:
            assert labels_seen(server) == {f"r-{key}" for key in keys if expected[key] == server.url}
        assert Counter(one.headers["x-smg-routing-key"] for server in servers for one in server.received) == {
            f"r-{key}": 3 for key in keys
        }


@pytest.mark.asyncio
async def test_consistent_hashing_stays_at_home_whatever_the_load() -> None:
    events: list[Event] = []
    async with ScriptedServer(delay_s=0.1) as a, ScriptedServer(delay_s=0.1) as b:
        urls = [a.url, b.url]
        keys = [key for key, url in homes(urls, range(60)).items() if url == a.url][:12]
        options: Any = {"cs": 12, "ce": 1, "base_url": urls, "run": "r", "routing": "consistent-hash"}
        async with AgentBatch(**options, on_event=events.append) as batch:
            await batch.map(ask_once, keys, key=str)
            assert batch.statistics().workers[a.url].turns_completed == 12
        assert (len(a.received), len(b.received)) == (12, 0)
    [started] = [one for one in events if isinstance(one, RunStarted)]
    assert (started.routing, started.alpha) == ("consistent-hash", 1.25)


@pytest.mark.asyncio
async def test_random_placement_follows_no_label_and_repeats_with_the_runs_name() -> None:
    """Case 43, mecatl#543: unkeyed calls; placed at random they still carry their label."""

    async def placed(run: str) -> list[str]:
        events: list[Event] = []
        options: Any = {"cs": 1, "ce": 1, "base_url": urls, "run": run, "routing": "random"}
        async with AgentBatch(**options, on_event=events.append) as batch, batch.trajectory("k") as trajectory:
            for _ in range(24):
                await ask_once(trajectory, None)
        return [one.worker for one in turns(events)]

    async with ScriptedServer() as a, ScriptedServer() as b:
        urls = [a.url, b.url]
        first = await placed("r")
        assert set(first) == set(urls)
        assert await placed("r") == first
        assert await placed("another") != first
        assert labels_seen(a) == labels_seen(b) == {"r-k", "another-k"}


@pytest.mark.asyncio
async def test_statistics_tell_what_each_worker_does_and_did(monkeypatch: pytest.MonkeyPatch) -> None:
    def script(received: Received) -> Answer:
        return Answer(status=400 if received.headers["x-smg-routing-key"].endswith("bad") else 200)

    async with ScriptedServer(script) as a, ScriptedServer(script) as b:
        urls = [a.url, b.url]
        async with AgentBatch(cs=8, ce=1, base_url=urls, run="r") as batch:
            keys = ["1", "2", "3", "4", "bad"]
            expected = homes(urls, keys)
            for key in keys:  # one after the other, so that each is at home
                await batch.map(ask_once, [key], key=str)
            for url, worker in batch.statistics().workers.items():
                assert worker.turns_completed == sum(expected[key] == url for key in keys[:4])
                assert worker.attempts_failed == (expected["bad"] == url)
                assert (worker.live, worker.outages, worker.in_flight) == (True, 0, 0)
            assert sum(in_flight(batch).values()) == batch.statistics().turns_in_flight == 0
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    async with AgentBatch(cs=1, ce=1) as batch:
        assert batch.statistics().workers == {}


def test_how_workers_show_themselves() -> None:
    workers = Workers(["http://a/v1", "http://b/v1/"])
    assert repr(workers) == "<Workers {'http://a/v1': 0, 'http://b/v1': 0}>"
    workers.blame("http://b/v1", ConnectionResetError())
    assert repr(workers) == "<Workers {'http://a/v1': 0, 'http://b/v1': 0} out=['http://b/v1']>"
