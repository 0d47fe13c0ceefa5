"""Several worker URLs: each turn goes where LBCH says, and the counts it says so by are right (spec §4)."""

from types import SimpleNamespace
from typing import Any

import anyio
import openai
import pytest
from runtime_helpers import ASK, in_flight, turns, until

from agentbatch import AgentBatch
from agentbatch.events import Event
from agentbatch.policy.lbch import Ring
from agentbatch.runtime import retry
from agentbatch.testing import Answer, Received, ScriptedServer

pytestmark = pytest.mark.asyncio


def keys_at_home(urls: list[str], url: str, count: int) -> list[str]:
    """Return `count` keys whose label in run "r" lives on `url`."""
    ring = Ring(urls)
    found = [key for key in map(str, range(1000)) if ring.home(f"r-{key}") == url]
    return found[:count]


async def test_a_full_home_spills_over_and_is_returned_to() -> None:
    """prime-rl#3255, verl#6533: sticky to a saturated worker."""
    events: list[Event] = []
    async with ScriptedServer(delay_s=0.05) as a, ScriptedServer(delay_s=0.05) as b:
        urls = [a.url, b.url]
        *eight, alone = keys_at_home(urls, a.url, 9)
        async with AgentBatch(cs=8, ce=1, base_url=urls, run="r", alpha=1.0, on_event=events.append) as batch:
            go = anyio.Event()

            async def solve(trajectory: Any, key: str) -> None:
                await go.wait()
                await trajectory.client.chat.completions.create(**ASK)

            async with anyio.create_task_group() as group:
                group.start_soon(lambda: batch.map(solve, eight, key=str))
                await until(lambda: batch.statistics().admission.held == 8)
                go.set()
                await until(lambda: batch.statistics().turns_in_flight == 8)
                # Eq. 9 by hand, L(a) <= (L + 1) / 2 before each: a a b a b a b a
                assert in_flight(batch) == {a.url: 5, b.url: 3}
            assert in_flight(batch) == {a.url: 0, b.url: 0}
            await batch.map(solve, [alone], key=str)
    assert [turn.worker for turn in turns(events)].count(b.url) == 3
    assert turns(events)[-1].worker == a.url


async def test_counts_return_to_zero_however_turns_end() -> None:
    def script(received: Received) -> Answer:
        how = int(received.headers["x-smg-routing-key"].rpartition("-")[2]) % 4
        return [
            Answer(),
            Answer(status=400),
            Answer(text="a b", cut_after=1),
            Answer(text="a b", stall_after=1),
        ][how]

    async with (
        ScriptedServer(script) as a,
        ScriptedServer(script) as b,
        AgentBatch(cs=40, ce=1, base_url=[a.url, b.url]) as batch,
    ):

        async def solve(trajectory: Any, n: int) -> int:
            stream = await trajectory.client.chat.completions.create(**ASK, stream=True)
            with anyio.move_on_after(0.05 if n % 4 == 3 else 30):
                return len([chunk async for chunk in stream])
            return -1

        results = await batch.map(solve, range(40))
        assert [result.ok for result in results[:4]] == [True, False, False, True]
        assert in_flight(batch) == {a.url: 0, b.url: 0}


async def test_each_attempt_is_placed_anew_and_none_is_counted_in_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    async def sleep(seconds: float) -> None:
        assert batch.statistics().turns_in_flight == 0

    monkeypatch.setattr(retry, "anyio", SimpleNamespace(sleep=sleep))
    events: list[Event] = []
    bad = lambda received: Answer(status=503)  # noqa: E731
    async with (
        ScriptedServer(bad) as a,
        ScriptedServer(bad) as b,
        AgentBatch(cs=1, ce=1, base_url=[a.url, b.url], on_event=events.append) as batch,
        batch.trajectory("k") as trajectory,
    ):
        with pytest.raises(openai.InternalServerError):
            await trajectory.client.chat.completions.create(**ASK)
        assert len(a.received) + len(b.received) == 4  # once on each, as the first to fail is left at once; two retries
        [turn] = turns(events)
        assert (turn.attempts, turn.worker) == (4, "")  # no worker served it


async def test_a_call_to_somewhere_else_is_a_turn_but_on_no_worker_of_ours() -> None:
    events: list[Event] = []
    async with ScriptedServer() as a, ScriptedServer() as b, ScriptedServer() as judge:
        async with AgentBatch(cs=1, ce=1, base_url=[a.url, b.url], on_event=events.append) as batch:

            async def solve(trajectory: Any, n: int) -> Any:
                return await trajectory.client.with_options(base_url=judge.url).chat.completions.create(**ASK)

            [result] = await batch.map(solve, [0])
            assert result.ok
        assert (len(a.received), len(b.received), len(judge.received)) == (0, 0, 1)
    [turn] = turns(events)
    assert (turn.worker, turn.outcome, turn.attempts) == ("", "ok", 1)


async def test_urls_that_the_sdk_spells_differently_are_placed_all_the_same() -> None:
    async with ScriptedServer() as a, ScriptedServer() as b:
        loud = [url.replace("127.0.0.1", "LOCALHOST") + "/" for url in (a.url, b.url)]
        async with AgentBatch(cs=4, ce=1, base_url=loud, run="r") as batch:
            results = await batch.map(lambda t, _: t.client.chat.completions.create(**ASK), range(16))
            assert all(result.ok for result in results)
        assert a.received
        assert b.received
