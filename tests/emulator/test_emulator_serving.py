"""The emulator over real HTTP: who may come in, ports, and how a block of it begins and ends."""

import asyncio
import socket
from typing import Any

import openai
import pytest
from emulator_helpers import raw, running, until, user
from openai import AsyncOpenAI

from agentbatch.emulator import serve
from agentbatch.errors import StartUpError, UsageError
from agentbatch.sim import POLICIES
from agentbatch.wire import ROUTING_KEY_HEADER

pytestmark = pytest.mark.asyncio


async def test_a_token_is_asked_of_everything_but_health() -> None:
    async with running(token="secret") as (emulator, client), raw(emulator) as http:
        assert await client.chat.completions.create(model="m", messages=user("x"))
        for path in ("/v1/models", "/server_info", "/metrics", "/debug/requests", "/flush_cache"):
            async with http.get(path) as answer:
                assert answer.status == 401
        async with http.get("/health") as answer:
            assert answer.status == 200
        with pytest.raises(openai.AuthenticationError):
            await client.with_options(api_key="wrong").models.list()
        assert "secret" not in repr(emulator.settings)


@pytest.mark.parametrize("policy", POLICIES)
async def test_every_policy_serves_a_queue_and_routing_prefix_knows_the_labels(policy: str) -> None:
    async with running(schedule_policy=policy, state_slots=6, speedup=500.0) as (emulator, client):
        async def converse(number: int) -> None:
            messages = user(f"{number} " * 400)
            for _ in range(3):
                reply = await client.chat.completions.create(
                    model="m", messages=messages, max_tokens=50, extra_headers={ROUTING_KEY_HEADER: f"t{number}"}
                )
                messages += [{"role": "assistant", "content": reply.choices[0].message.content}, *user("go on")]

        async with asyncio.TaskGroup() as group:
            for number in range(8):
                group.create_task(converse(number))
        stats = emulator.statistics()[0]
        assert (stats.finished, stats.peak_running) == (24, 2)
        assert stats.passes > 0
        assert stats.labels == (3 if policy == "routing-prefix" else 0)


async def test_a_port_in_use_is_told_before_anything_runs() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(StartUpError, match=rf"127\.0\.0\.1:{port}.*choose another base port"):
            async with serve(workers=1, base_port=port):
                raise AssertionError("unreachable")


async def test_ports_follow_each_other_and_are_free_again_afterwards() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for _ in range(2):
        async with serve(workers=1, base_port=port) as emulator:
            assert emulator.urls == [f"http://127.0.0.1:{port}/v1"]


async def test_the_body_of_the_block_keeps_its_own_exception() -> None:
    with pytest.raises(ZeroDivisionError):
        async with serve(workers=1):
            raise ZeroDivisionError


async def test_leaving_the_block_sends_waiting_requests_away() -> None:
    async with serve(workers=1, speedup=1e-6) as emulator:
        client = AsyncOpenAI(base_url=emulator.urls[0], api_key="x", max_retries=0)
        task = asyncio.create_task(client.chat.completions.create(model="m", messages=user("x")))
        await until(lambda: emulator.peak_in_flight() == (1,))
    with pytest.raises(openai.InternalServerError, match="shutting down"):
        await task
    await client.close()


async def test_a_cancelled_block_stops_its_servers() -> None:
    urls: list[str] = []

    async def hold() -> None:
        async with serve(workers=1) as emulator:
            urls.extend(emulator.urls)
            await asyncio.Event().wait()

    task = asyncio.create_task(hold())
    await until(lambda: urls)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    host, port = urls[0].removeprefix("http://").removesuffix("/v1").split(":")
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(host, int(port))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"workers": 0}, "workers must be 1 to 64"), ({"speedup": 0.0}, "speedup"),
        ({"speedup": float("nan")}, "speedup"), ({"base_port": 65_535}, "base port 65535"),
        ({"base_port": -1}, "base port -1"), ({"preset": "h100"}, "unknown preset"),
        ({"schedule_policy": "hrrn"}, "known: fcfs"), ({"kv_tokens": 0}, "kv_tokens"),
        ({"state_slots": 1}, "state_slots"), ({"host": "0.0.0.0"}, "give a token"), ({"token": ""}, "empty token"),
    ],
)
async def test_what_cannot_be_is_refused_before_anything_runs(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        async with serve(**options):
            raise AssertionError("unreachable")


async def test_a_host_that_is_not_ours_is_a_start_up_error() -> None:
    with pytest.raises(StartUpError, match=r"192\.0\.2\.1"):
        async with serve(workers=1, host="192.0.2.1", token="t"):
            raise AssertionError("unreachable")
