"""The emulator over real HTTP, through the real SDK: what it answers."""

import asyncio
import json
from typing import Any

import aiohttp
import openai
import pytest
from emulator_helpers import EXACT, TOOL, raw, running, until, user

from agentbatch import __version__
from agentbatch.emulator import Reply, ToolCall
from agentbatch.emulator.endpoint import MAX_BODY_BYTES
from agentbatch.wire import ROUTING_KEY_HEADER

pytestmark = pytest.mark.asyncio


async def test_a_whole_reply() -> None:
    async with running() as (_, client):
        reply = await client.chat.completions.create(
            model="any", messages=user("hello"), max_tokens=300, extra_body=EXACT)
    assert reply.usage is not None
    assert reply.usage.prompt_tokens_details is not None
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (8 + 5 + 4, 300)
    assert reply.usage.prompt_tokens_details.cached_tokens == 0
    choice = reply.choices[0]
    assert (len(choice.message.content or ""), choice.finish_reason, reply.model) == (300, "length", "any")


async def test_a_stream_says_the_same_and_tells_usage_when_asked() -> None:
    async with running() as (_, client):
        whole = await client.chat.completions.create(
            model="m", messages=user("hello"), max_tokens=400, extra_body=EXACT)
        stream = await client.chat.completions.create(
            model="m", messages=user("hello"), max_tokens=400, extra_body=EXACT, stream=True,
            stream_options={"include_usage": True})
        chunks = [chunk async for chunk in stream]
        plain = await client.chat.completions.create(
            model="m", messages=user("hello"), max_tokens=400, extra_body=EXACT, stream=True)
        without = [chunk async for chunk in plain]
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 400
    assert chunks[-1].usage.prompt_tokens_details is not None
    assert not chunks[-1].choices
    assert chunks[-2].choices[0].finish_reason == "length"
    assert all(chunk.choices and chunk.usage is None for chunk in without)


async def test_chunks_come_while_the_reply_is_generated() -> None:
    async with running(speedup=5.0) as (emulator, client):
        stream = await client.chat.completions.create(
            model="m", messages=user("hello"), max_tokens=20_000, extra_body=EXACT, stream=True)
        first = await anext(aiter(stream))
        assert first.choices[0].delta.content
        assert emulator.statistics()[0].finished == 0
        await stream.close()  # the client goes away in the middle
        await until(lambda: emulator.statistics()[0].aborted == 1)
        await until(lambda: emulator.statistics()[0].running == 0)
        stats = emulator.statistics()[0]
        assert (stats.kv_free + stats.kv_evictable, stats.states_held) == (stats.kv_total, 0)


async def test_completions_stream_and_whole() -> None:
    async with running() as (_, client):
        whole = await client.completions.create(model="m", prompt="once upon", max_tokens=50, extra_body=EXACT)
        stream = await client.completions.create(
            model="m", prompt="once upon", max_tokens=50, extra_body=EXACT, stream=True,
            stream_options={"include_usage": True})
        chunks = [chunk async for chunk in stream]
    assert len(whole.choices[0].text) == 50
    assert whole.usage is not None
    assert whole.usage.prompt_tokens == 9
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == whole.choices[0].text
    assert chunks[-1].usage is not None


async def test_the_second_turn_finds_the_first_in_the_cache_and_a_repeat_does_not() -> None:
    async with running() as (_, client):
        async def cached(messages: Any) -> tuple[int, str, int]:
            reply = await client.chat.completions.create(
                model="m", messages=messages, max_tokens=200, extra_body=EXACT)
            assert reply.usage is not None
            assert reply.usage.prompt_tokens_details is not None
            told = reply.usage.prompt_tokens_details.cached_tokens or 0
            return told, reply.choices[0].message.content or "", reply.usage.prompt_tokens

        first = user("x" * 1000)
        hit, text, prompt = await cached(first)
        assert hit == 0
        hit, _, _ = await cached([*first, {"role": "assistant", "content": text}, *user("go on")])
        assert hit == (prompt + 200) // 64 * 64
        assert (await cached(user("y" * 1000)))[0] == 0
        assert (await cached(user("y" * 1000)))[0] == 0
        assert (await cached([*user("y" * 1000), *user("and more")]))[0] == (8 + 1000 - 4) // 64 * 64


async def test_reuse_follows_the_text_never_the_label() -> None:
    async with running() as (_, client):
        async def ask(messages: Any, label: str) -> tuple[int, str]:
            reply = await client.chat.completions.create(
                model="m", messages=messages, max_tokens=100, extra_body=EXACT,
                extra_headers={ROUTING_KEY_HEADER: label})
            assert reply.usage is not None
            assert reply.usage.prompt_tokens_details is not None
            return reply.usage.prompt_tokens_details.cached_tokens or 0, reply.choices[0].message.content or ""

        _, text = await ask(user("a" * 1000), "one")
        assert (await ask(user("b" * 1000), "one"))[0] == 0
        more = [*user("a" * 1000), {"role": "assistant", "content": text}, *user("go on")]
        assert (await ask(more, "two"))[0] > 1000


async def test_scripted_tool_calls_drive_an_agent_loop() -> None:
    def script(messages: Any) -> Reply | None:
        if messages[-1]["role"] == "tool":
            return Reply(f"It says: {messages[-1]['content']}")
        return Reply("Let me look.", (ToolCall("ls", {"path": "."}), ToolCall("ls", {"path": "/"})))

    async with running(script=script) as (_, client):
        messages = user("what is there?")
        reply = await client.chat.completions.create(model="m", messages=messages, tools=[TOOL])
        assert reply.choices[0].finish_reason == "tool_calls"
        calls = reply.choices[0].message.tool_calls or []
        assert [json.loads(call.function.arguments) for call in calls] == [{"path": "."}, {"path": "/"}]  # type: ignore[union-attr]
        assert len({call.id for call in calls}) == 2
        messages.append(reply.choices[0].message)
        messages.append({"role": "tool", "tool_call_id": calls[0].id, "content": "README.md"})
        async with client.chat.completions.stream(model="m", messages=messages, tools=[TOOL]) as stream:
            final = await stream.get_final_completion()
        assert final.choices[0].message.content == "It says: README.md"
        assert final.choices[0].finish_reason == "stop"
        async with client.chat.completions.stream(model="m", messages=user("again"), tools=[TOOL]) as stream:
            final = await stream.get_final_completion()
        assert [call.function.name for call in final.choices[0].message.tool_calls or []] == ["ls", "ls"]


async def test_a_script_that_fails_is_a_server_error_and_no_crash() -> None:
    def script(messages: Any) -> Reply | None:
        raise KeyError("oops")

    async with running(script=script) as (_, client):
        with pytest.raises(openai.InternalServerError, match="KeyError"):
            await client.chat.completions.create(model="m", messages=user("x"))
        assert [model.id async for model in client.models.list()] == ["h20-tp4-ling-3.0-flash"]


async def test_server_info_has_sglangs_shape() -> None:
    async with (
        running(kv_tokens=50_000, state_slots=33, workers=2) as (emulator, _),
        raw(emulator) as http,
    ):
        for path in ("/server_info", "/get_server_info"):
            async with http.get(path) as answer:
                info = await answer.json()
        assert info["max_total_num_tokens"] == 50_000
        assert info["schedule_policy"] == "fcfs"
        state = info["internal_states"][0]
        assert state["max_mamba_cache_size"] == 33
        assert state["memory_usage"]["token_capacity"] == 50_000
        assert state["effective_max_running_requests_per_dp"] == 11
        assert {"mamba_full_memory_ratio", "page_size"} <= state.keys()
        about = info["agentbatch_emulator"]
        assert (about["version"], about["speedup"], about["workers"]) == (__version__, 5000.0, 2)
        async with http.get("/health") as answer:
            assert answer.status == 200


async def test_metrics_and_debug_view() -> None:
    async with running() as (emulator, client), raw(emulator) as http:
        await client.chat.completions.create(
            model="m", messages=user("x" * 500), max_tokens=10, extra_body=EXACT,
            extra_headers={ROUTING_KEY_HEADER: "run-task"})
        async with http.get("/metrics") as answer:
            lines = (await answer.text()).splitlines()
        values = {line.split("{")[0]: float(line.split()[-1]) for line in lines if not line.startswith("#")}
        async with http.get("/debug/requests") as answer:
            seen = await answer.json()
    assert values["sglang:num_running_reqs"] == values["sglang:num_queue_reqs"] == 0
    assert values["sglang:prompt_tokens_total"] == 512
    assert values["sglang:generation_tokens_total"] == 10
    slots = sum(values[f"sglang:mamba_{kind}_tokens"] for kind in ("available", "evictable", "used"))
    assert (slots, values["sglang:mamba_evictable_tokens"]) == (304, 1)
    assert {"sglang:token_usage", "sglang:cache_hit_rate"} <= values.keys()
    assert (seen["seen"], seen["in_flight"], seen["peak_in_flight"]) == (1, 0, 1)
    assert seen["requests"] == [{
        "label": "run-task", "endpoint": "chat", "streamed": False, "prompt_tokens": 512, "output_tokens": 10,
        "in_flight": 1, "cached_tokens": 0, "outcome": "ok"}]


async def test_no_hidden_cap_on_what_comes_in() -> None:
    """Cases 17 (inspect_ai#847, NeMo-RL#3590): the server sees every one of 300 at once."""
    async with (
        running(speedup=1e-6) as (emulator, _),
        raw(emulator, connector=aiohttp.TCPConnector(limit=0)) as http,
    ):
        body = {"messages": user("hello"), "max_tokens": 5}
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(http.post("/v1/chat/completions", json=body)) for _ in range(300)]
            await until(lambda: emulator.peak_in_flight() == (300,))
            for task in tasks:
                task.cancel()
        await until(lambda: emulator.statistics()[0].aborted == 300)


async def test_flush_forgets_and_is_refused_while_requests_run() -> None:
    async with running(speedup=5.0) as (emulator, client), raw(emulator) as http:
        stream = await client.chat.completions.create(
            model="m", messages=user("x" * 1000), max_tokens=10_000, extra_body=EXACT, stream=True)
        await anext(aiter(stream))
        async with http.post("/flush_cache") as answer:
            assert answer.status == 400
            assert "1 requests run" in await answer.text()
        await stream.close()
        await until(lambda: emulator.statistics()[0].running == 0 and emulator.statistics()[0].aborted == 1)
        assert emulator.statistics()[0].kv_evictable > 0
        async with http.get("/flush_cache") as answer:
            assert answer.status == 200
        assert emulator.statistics()[0].kv_evictable == 0


async def test_requests_that_cannot_be_served_are_400_in_openais_shape() -> None:
    async with running(kv_tokens=2000) as (emulator, client), raw(emulator) as http:
        with pytest.raises(openai.BadRequestError, match="context is 1998 tokens"):
            await client.chat.completions.create(model="m", messages=user("x" * 3000))
        with pytest.raises(openai.BadRequestError, match="lower max_tokens"):
            await client.chat.completions.create(model="m", messages=user("x"), max_tokens=10**9)
        async with http.post("/v1/chat/completions", data=b"{nonsense") as answer:
            body = await answer.json()
            assert answer.status == 400
        assert body["error"]["type"] == "invalid_request_error"
        assert "not valid JSON" in body["error"]["message"]
        async with http.get("/v1/chat/completions") as answer:
            assert answer.status == 405
        async with http.post("/v1/embeddings", json={}) as answer:
            assert answer.status == 404
            assert "/v1/embeddings" in (await answer.json())["error"]["message"]
        reply = await client.chat.completions.create(model="m", messages=user("still here"))
        assert reply.choices[0].message.content


async def test_a_body_too_large_is_refused_unread() -> None:
    async with running() as (emulator, _):
        host, port = emulator.urls[0].removeprefix("http://").removesuffix("/v1").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {MAX_BODY_BYTES + 1}\r\n\r\n"
        writer.write(head.encode())
        assert b"413" in await reader.readline()
        writer.close()
        await writer.wait_closed()


async def test_a_client_that_leaves_in_the_middle_of_its_body_does_no_harm() -> None:
    async with running() as (emulator, client):
        host, port = emulator.urls[0].removeprefix("http://").removesuffix("/v1").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        await client.chat.completions.create(model="m", messages=user("x"))
        assert emulator.statistics()[0].admitted == 1


async def test_a_defect_of_the_model_fails_requests_instead_of_hanging_them(monkeypatch: Any) -> None:
    async with running() as (emulator, client), raw(emulator) as http:
        def broken(now_s: float) -> None:
            raise AssertionError("defect")

        monkeypatch.setattr(emulator._apps[0].engine.worker, "advance", broken)
        for stream in (False, True):
            with pytest.raises(openai.InternalServerError, match="engine model failed"):
                await client.chat.completions.create(model="m", messages=user("x"), stream=stream)
        async with http.get("/health") as answer:
            assert answer.status == 503
