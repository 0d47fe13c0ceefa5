"""What is found out before any task runs, and what a batch that did not start leaves behind: nothing."""

import asyncio
import gc
import socket
from typing import Any

import pytest

import agentbatch
from agentbatch import AgentBatch, BatchClosed, StartUpError, UsageError
from agentbatch.runtime import preflight
from agentbatch.testing import ScriptedServer

pytestmark = pytest.mark.asyncio


def unused_url() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/v1"


async def answering(head: str, body: str = "") -> asyncio.Server:
    """Serve one raw answer to whatever comes."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            if head:
                writer.write(f"HTTP/1.1 {head}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
                await writer.drain()
            await reader.read()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    return await asyncio.start_server(connected, "127.0.0.1", 0)


def url_of(server: asyncio.Server) -> str:
    return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


async def test_one_unreachable_worker_of_two_is_named_before_anything_runs(tmp_path: Any) -> None:
    dead = unused_url()
    record = tmp_path / "run.jsonl"
    before = gc.get_threshold()
    async with ScriptedServer() as server:
        batch = AgentBatch(cs=500, ce=1, base_url=[server.url, dead], record=record)
        with pytest.raises(StartUpError, match=f"cannot reach {dead}"):
            await batch.__aenter__()
        assert server.received == []
        with pytest.raises(BatchClosed, match="not running"):
            await batch.map(lambda trajectory, _: asyncio.sleep(0), [1])
    assert not record.exists()
    assert gc.get_threshold() == before
    assert agentbatch.current_trajectory() is None


async def test_a_batch_that_could_not_start_can_be_tried_again() -> None:
    url = unused_url()
    batch = AgentBatch(cs=1, ce=1, base_url=url)
    with pytest.raises(StartUpError):
        await batch.__aenter__()
    port = int(url.rpartition(":")[2].partition("/")[0])
    late = await asyncio.start_server(_list_models, "127.0.0.1", port)
    async with late, batch:
        [result] = await batch.map(lambda trajectory, n: asyncio.sleep(0, n), [7])
        assert result.ok
        assert result.value == 7


async def _list_models(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
    await writer.drain()
    writer.close()


@pytest.mark.parametrize(
    ("head", "body", "notices"),
    [
        ("401 Unauthorized", "{}", ["unauthorised"]),
        ("403 Forbidden", "{}", ["unauthorised"]),
        ("404 Not Found", "{}", []),
        ("500 Oops", "{}", []),
        ("200 OK\r\nContent-Type: application/json", "{}", []),
        ("200 OK\r\nContent-Type: application/json", "not json", ["odd-server"]),
        ("200 OK\r\nContent-Type: text/html", "<html>", []),
        ("", "", ["slow-server"]),
    ],
)
async def test_any_answer_will_do_and_the_strange_ones_are_noticed(
    head: str, body: str, notices: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "ANSWER_WITHIN_S", 0.1)
    server = await answering(head, body)
    async with server, AgentBatch(cs=1, ce=1, base_url=url_of(server), api_key="sk-very-secret") as batch:
        assert [notice.kind for notice in batch.hub.notices] == notices
        assert not any("sk-very-secret" in notice.message for notice in batch.hub.notices)


@pytest.mark.parametrize(
    "url",
    ["", "http://", "http:///v1", "localhost:80", " http://a/v1", "http://a b/v1", "http://a:x/v1", "http://a:99999/v1",
     "http://a:0/v1", "http://[::1/v1", "http://\0/v1", "ftp://a/v1", ["http://a/v1", 5]],
)  # fmt: skip
async def test_what_is_no_url_is_told_at_construction(url: Any) -> None:
    with pytest.raises(UsageError, match="base_url"):
        AgentBatch(cs=1, ce=1, base_url=url)


async def test_a_host_name_that_cannot_be_one_is_unreachable() -> None:
    with pytest.raises(StartUpError, match="cannot reach"):
        await AgentBatch(cs=1, ce=1, base_url=f"http://{'a' * 70}.example/v1").__aenter__()


async def test_an_existing_record_is_an_error_and_stays_as_it_was(tmp_path: Any) -> None:
    record = tmp_path / "run.jsonl"
    record.write_text("precious\n")
    async with ScriptedServer() as server:
        with pytest.raises(StartUpError, match="exists"):
            await AgentBatch(cs=1, ce=1, base_url=server.url, record=record).__aenter__()
        with pytest.raises(StartUpError):
            await AgentBatch(cs=1, ce=1, record=tmp_path / "no" / "such" / "folder.jsonl").__aenter__()
    assert record.read_text() == "precious\n"


async def test_the_servers_url_and_key_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ScriptedServer() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-from-environment")
        async with AgentBatch(cs=1, ce=1) as batch, batch.trajectory("k") as trajectory:
            await trajectory.client.models.list()
        assert [one.headers["authorization"] for one in server.gets] == ["Bearer sk-from-environment"] * 2


async def test_a_batch_without_a_server_runs_tools_and_says_what_a_model_call_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    async with AgentBatch(cs=1, ce=1) as batch, batch.trajectory("k") as trajectory:
        assert await trajectory.act(asyncio.sleep, 0, 5) == 5
        with pytest.raises(UsageError, match=r"base_url.*OPENAI_BASE_URL"):
            _ = trajectory.client
        with pytest.raises(UsageError, match="base_url"):
            batch.plain_client()


async def test_a_plain_client_shares_the_pool_and_carries_no_label() -> None:
    async with ScriptedServer() as server, AgentBatch(cs=1, ce=1, base_url=server.url) as batch:
        reply = await batch.plain_client().chat.completions.create(
            model="m", messages=[{"role": "user", "content": "grade this"}]
        )
        assert reply.choices[0].message.content == "done"
        assert "x-smg-routing-key" not in server.received[0].headers
        assert batch.statistics().turns_completed == 0
