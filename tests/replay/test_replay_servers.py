"""Replays against servers that lack something: each is told, none is half-run."""

import os
import socket
from pathlib import Path

import pytest
from replay_support import batch, odd_server, of, replayed, trajectory, turn

from agentbatch.errors import StartUpError
from agentbatch.events import RunStarted, TurnEnded

pytestmark = pytest.mark.asyncio


def kinds(notices: tuple[object, ...]) -> list[str]:
    return [notice.kind for notice in notices]  # type: ignore[attr-defined]


async def test_a_plain_server_is_replayed_at_its_own_pace_to_its_own_tokens() -> None:
    workload = [trajectory("a", turn(200, 4, env_s=0.01), turn(400, 3)), trajectory("b", turn(300, 2))]
    async with odd_server() as server:
        result, events = await replayed(workload, [server.url])
    assert of(RunStarted, events)[0].speedup == 1.0
    assert [event.prompt_tokens for event in of(TurnEnded, events, "a")] == [200, 400]
    assert result.notices == ()
    assert result.summary.lower_bound_s is not None  # environment and waits alone: its engine is unknown
    reply = server.bodies[-1]["messages"][1]
    assert reply == {"role": "assistant", "content": "hmm abc abc abc "}  # a reasoning model's thoughts are part of it


async def test_every_turn_asks_for_the_recorded_length_and_for_usage() -> None:
    async with odd_server(models=("first", "second")) as server:
        await replayed([trajectory("a", turn(50, 7))], [server.url])
        await replayed([trajectory("a", turn(50, 7))], [server.url], model="second")
    for body, model in zip([body for body in server.bodies if body.get("stream")], ["first", "second"], strict=True):
        assert body["model"] == model
        assert (body["max_tokens"], body["ignore_eos"], body["temperature"]) == (7, True, 0.0)
        assert body["stream_options"] == {"include_usage": True}


async def test_a_server_that_refuses_ignore_eos_is_asked_without_and_the_difference_is_told() -> None:
    """Several at once: the second refusal must not fail its trajectory."""
    async with odd_server(ignore_eos=False) as server:
        result, _ = await replayed([trajectory(f"t{n}", turn(200, 10)) for n in range(4)], [server.url])
    assert result.summary.completed == 4
    assert result.summary.retries == 0
    assert not any("ignore_eos" in body for body in server.bodies if body.get("stream"))
    assert kinds(result.notices) == ["lengths-not-exact", "lengths"]
    assert "lengths not exact" in result.notices[0].message
    assert result.notices[1].details["output_tokens_difference"] == -4 * 7


async def test_a_server_without_usage_is_replayed_on_estimates() -> None:
    async with odd_server(usage=False) as server:
        result, _ = await replayed([trajectory("a", turn(200, 4), turn(300, 4))], [server.url])
    assert result.summary.completed == 1
    assert result.summary.input_tokens is None
    assert kinds(result.notices) == ["no-usage"]
    assert [notice.kind for notice in result.summary.notices] == ["no-usage", "usage"]
    contents = [len(message["content"]) for message in server.bodies[-1]["messages"]]
    assert contents[0] == 200
    assert contents[2] == 300 - 200 - 4


async def test_a_server_that_cannot_flush_is_named_and_left_alone_where_not_asked() -> None:
    short = [trajectory("a", turn(50, 2))]
    async with odd_server(flush=False) as server:
        asked, _ = await replayed(short, [server.url])
        unasked, _ = await replayed(short, [server.url], flush=False)
    assert kinds(asked.notices) == ["not-flushed"]
    assert server.url in asked.notices[0].message
    assert unasked.notices == ()


async def test_a_speedup_on_a_server_that_has_none_is_told() -> None:
    async with odd_server() as server:
        result, events = await replayed([trajectory("a", turn(50, 2, env_s=0.1))], [server.url], speedup=20.0)
    assert of(RunStarted, events)[0].speedup == 20.0
    assert kinds(result.notices) == ["speedup"]


async def test_several_servers_are_each_prepared_and_used() -> None:
    async with odd_server() as one, odd_server(flush=False) as other:
        result, events = await replayed(batch(9), [one.url, other.url], cs=9, ce={"default": 9}, speedup=50.0)
    assert result.summary.completed == 9
    assert {event.worker for event in of(TurnEnded, events)} == {one.url, other.url}
    assert kinds(result.notices).count("not-flushed") == 1


async def test_nothing_is_recorded_where_no_replay_can_begin(tmp_path: Path) -> None:
    record = tmp_path / "run.jsonl"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{free.getsockname()[1]}/v1"  # bound, but nobody listens
        with pytest.raises(StartUpError, match=r"cannot reach .*is the server running"):
            await replayed(batch(1), [nowhere], record=str(record))
        async with odd_server() as server:
            with pytest.raises(StartUpError, match="cannot reach"):
                await replayed(batch(1), [server.url, nowhere], record=str(record))
    async with odd_server(models=()) as server:
        with pytest.raises(StartUpError, match="--model"):
            await replayed(batch(1), [server.url], record=str(record))
        with pytest.raises(StartUpError, match=r"does not list its models .*usually ends in /v1"):
            await replayed(batch(1), [server.url.removesuffix("/v1")], record=str(record))
        with pytest.raises(StartUpError, match="refused a first chat completion"):
            await replayed(batch(1), [server.url + "/nowhere"], model="odd", record=str(record))
    async with odd_server(blind=True) as server:
        with pytest.raises(StartUpError, match="truncate"):
            await replayed(batch(1), [server.url], record=str(record))
    assert os.listdir(tmp_path) == []
    assert not any(body.get("stream") for body in server.bodies)
