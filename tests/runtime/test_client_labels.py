"""The label on the wire: on every request, never forged, never shared."""

from typing import Any

import pytest
from runtime_helpers import ASK, turns

from agentbatch import AgentBatch, UsageError
from agentbatch.events import Event
from agentbatch.testing import ScriptedServer
from agentbatch.wire import ROUTING_KEY_HEADER

pytestmark = pytest.mark.asyncio
HEADER = ROUTING_KEY_HEADER.lower()


@pytest.mark.parametrize("spelling", [ROUTING_KEY_HEADER, HEADER, HEADER.upper()])
async def test_a_header_of_the_callers_cannot_take_the_labels_place(spelling: str) -> None:
    """openai 2 merges headers by exact name: another spelling went out as a second value, before ours."""
    forged = {spelling: "forged"}
    async with (
        ScriptedServer() as server,
        AgentBatch(cs=1, ce=1, base_url=server.url, run="r") as batch,
        batch.trajectory("k") as trajectory,
    ):
        client = trajectory.client
        await client.chat.completions.create(**ASK, extra_headers=forged)
        await client.with_options(default_headers=forged).chat.completions.create(**ASK)
        copy = client.copy(set_default_headers={**forged, "X-Mine": "1"}).with_options(max_retries=1)
        await copy.chat.completions.create(**ASK, extra_headers={"X-Mine-Too": "2"})
        assert [one.headers[HEADER] for one in server.received] == ["r-k"] * 3
        last = server.received[-1].headers
        assert (last["x-mine"], last["x-mine-too"]) == ("1", "2")


async def test_what_is_no_model_call_is_labelled_too_but_no_turn() -> None:
    events: list[Event] = []
    async with (
        ScriptedServer() as server,
        AgentBatch(cs=1, ce=1, base_url=server.url, run="r", on_event=events.append) as batch,
    ):
        async with batch.trajectory("k") as trajectory:
            models = await trajectory.client.models.list()
            assert [model.id for model in models.data] == ["scripted"]
        start_up, listed = server.gets
        assert HEADER not in start_up.headers  # of no trajectory
        assert listed.headers[HEADER] == "r-k"
        assert turns(events) == []


async def test_every_request_of_a_trajectory_carries_one_label_whichever_copy_sends_it() -> None:
    async with (
        ScriptedServer() as server,
        ScriptedServer() as judge,
        AgentBatch(cs=4, ce=1, base_url=server.url, run="r") as batch,
    ):

        async def solve(trajectory: Any, n: int) -> None:
            client = trajectory.client
            assert trajectory.client is client
            for one in (client, client.copy(), client.with_options(timeout=9), client.copy().copy(max_retries=0)):
                await one.chat.completions.create(**ASK)
            await client.with_options(base_url=judge.url).chat.completions.create(**ASK)

        results = await batch.map(solve, range(4))
        assert all(result.ok for result in results)
    for key in range(4):
        assert sum(one.headers[HEADER] == f"r-{key}" for one in server.received) == 4
        assert sum(one.headers[HEADER] == f"r-{key}" for one in judge.received) == 1


async def test_trajectories_without_names_never_share_a_label_even_across_batches() -> None:
    """ThunderAgent: a missing id became a shared default."""
    async with ScriptedServer() as server:

        async def solve(trajectory: Any, task: object) -> None:
            await trajectory.client.chat.completions.create(**ASK)

        for _ in range(3):
            async with AgentBatch(cs=9, ce=1, base_url=server.url) as batch:
                await batch.map(solve, [None] * 4)
                await batch.map(solve, [None] * 4)
                async with batch.trajectory(0) as trajectory:
                    await solve(trajectory, None)
        labels = [one.headers[HEADER] for one in server.received]
        assert len(set(labels)) == len(labels) == 27


async def test_a_task_named_like_a_second_run_does_not_take_its_label() -> None:
    """ThunderAgent's kind: `a` run again would be `a~2`, which may be the name of another task."""
    async with AgentBatch(cs=9, ce=1, run="r") as batch:
        labels = []
        for key in ("a", "a~2", "a", "a", "a~2", "a~2~2"):
            async with batch.trajectory(key) as trajectory:
                labels.append(trajectory.label)
    assert labels[:4] == ["r-a", "r-a~2", "r-a~3", "r-a~4"]
    assert len(set(labels)) == len(labels)


async def test_keys_of_every_kind_arrive_as_printable_labels_of_their_own() -> None:
    """vLLM router#219: session-1 matched session-12."""
    keys = [
        "session-1", "session-12", "session-1 ", " session-1", "sés", "sés\u0301", "a\r\nX-Evil: 1", "\0", "\t", "日本",
        "x" * 128, "x" * 129, "x" * 5000, "", ("a", 1), 7, None, "\ud800",
    ]  # fmt: skip
    async with ScriptedServer() as server, AgentBatch(cs=50, ce=1, base_url=server.url, run="r") as batch:
        results = await batch.map(lambda t, _: t.client.chat.completions.create(**ASK), keys, key=lambda key: key)
        assert [result.key for result in results] == [str(key) for key in keys]
        assert all(result.ok for result in results)
        arrived = {one.headers[HEADER] for one in server.received}
        assert arrived == {result.label for result in results}
        assert len(arrived) == len(keys)
        assert all(len(label) <= 128 and label.isascii() and label.isprintable() for label in arrived)
        assert not any("x-evil" in one.headers for one in server.received)


async def test_the_label_goes_in_every_header_asked_for_and_nobody_overrides_it() -> None:
    """SGLang's gateway: the label was implicit; other gateways read X-Session-ID or X-Dynamo-Session-ID."""
    names = ["X-Session-ID", "X-Dynamo-Session-ID"]
    async with (
        ScriptedServer() as server,
        AgentBatch(cs=1, ce=1, run="r", base_url=server.url, label_headers=names) as batch,
        batch.trajectory("k") as trajectory,
    ):
        client = trajectory.client.with_options(default_headers={"x-session-id": "mine"})
        await client.chat.completions.create(**ASK, extra_headers={"X-DYNAMO-session-id": "mine", "X-Mine": "kept"})
        await trajectory.child("user").client.chat.completions.create(**ASK)
    parent, child = (received.headers for received in server.received)
    for name in ("x-smg-routing-key", *map(str.lower, names)):
        assert (parent[name], child[name]) == ("r-k", "r-k/user")
    assert parent["x-mine"] == "kept"


@pytest.mark.parametrize(
    "wrong", [["authorization"], ["Host"], ["two words"], [""], [7], "X-Session-ID", ["x\r\ny"], ["Content-Length"]]
)
async def test_a_header_that_cannot_carry_a_label_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match="label_headers"):
        AgentBatch(cs=1, ce=1, label_headers=wrong)


async def test_an_unlabelled_call_is_said_once() -> None:
    """Case 36, SGLang gateway: an implicit hash of the Authorization header sent every such call to one worker."""
    async with ScriptedServer() as server, AgentBatch(cs=1, ce=1, base_url=server.url) as batch:
        client = batch.plain_client()
        for use in (client, client.with_options(timeout=3), batch.plain_client()):
            await use.chat.completions.create(**ASK)
        await client.close()  # harmless
        async with batch.trajectory("k") as trajectory:
            await trajectory.client.chat.completions.create(**ASK)
        assert [notice.kind for notice in batch.hub.notices] == ["unlabelled"]
    assert ["x-smg-routing-key" in received.headers for received in server.received] == [False] * 3 + [True]
