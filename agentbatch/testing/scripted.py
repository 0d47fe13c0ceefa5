"""A scripted model: an OpenAI-shaped HTTP server in the running asyncio loop, whose every answer the test decides.

For tests that need determinism: failures in a given order, delays, cut streams, what arrived at the server. Where a
model's behaviour matters, use `agentbatch.emulator`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """One answer of the server.

    Attributes:
        status: HTTP status; other than 200 the body is an error in OpenAI's form.
        text: content of the reply. usage: token counts to report; None reports none.
        delay_s: wall seconds before the answer. headers: extra response headers.
        cut_after: for a stream, break the connection after so many chunks.
        fail_after: for a stream, send an error event after so many chunks, and no more.
        stall_after: for a stream, say nothing more after so many chunks, until the client leaves.
    """

    status: int = 200
    text: str = "done"
    usage: Mapping[str, Any] | None = field(
        default_factory=lambda: {
            "prompt_tokens": 8,
            "completion_tokens": 4,
            "total_tokens": 12,
            "prompt_tokens_details": {"cached_tokens": 6},
        }
    )
    delay_s: float = 0.0
    headers: Mapping[str, str] = field(default_factory=dict)
    cut_after: int | None = None
    fail_after: int | None = None
    stall_after: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Received:
    """One request as it arrived; header names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


Script = Callable[[Received], Answer]


class ScriptedServer:
    """Serves on a free loopback port for the length of an `async with`.

    Args:
        script: gives the answer to each request; by default a fixed reply.
        delay_s: wall seconds before every answer, on top of the answer's own.
        port: to listen on; 0 takes a free one. Another server's, once that has ended, stands for its return.

    Attributes:
        received: every POST, in order of arrival. peak: the most POSTs at once. connections: open now.
        gets: every GET, the start-up question of a batch among them. health: status of GET /health; may be changed.
    """

    def __init__(self, script: Script | None = None, *, delay_s: float = 0.0, port: int = 0) -> None:
        self._script = script or (lambda received: Answer())
        self._delay_s = delay_s
        self._port = port
        self._server: asyncio.Server | None = None
        self._url = ""
        self._tasks: set[asyncio.Task[None]] = set()
        self.received: list[Received] = []
        self.gets: list[Received] = []
        self.in_flight = self.peak = 0
        self.health = 200

    @property
    def url(self) -> str:
        """OpenAI base URL of the server; still told after its end."""
        if not self._url:
            raise RuntimeError("the server is not running: use it inside `async with`")
        return self._url

    @property
    def port(self) -> int:
        """Where the server listens."""
        return int(self.url.rpartition(":")[2].removesuffix("/v1"))

    @property
    def connections(self) -> int:
        """Connections open now."""
        return len(self._tasks)

    async def __aenter__(self) -> ScriptedServer:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self._port, backlog=4096)
        self._url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        try:
            while (received := await _read(reader)) is not None:
                if received.method == "GET":
                    self.gets.append(received)
                    status = self.health if received.path == "/health" else 200
                    models = {"object": "list", "data": [{"id": "scripted", "object": "model"}]}
                    writer.write(_plain(status, {}, models))
                    continue
                self.received.append(received)
                self.in_flight += 1
                self.peak = max(self.peak, self.in_flight)
                try:
                    await self._answer(received, reader, writer)
                finally:
                    self.in_flight -= 1
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client went away, or the server stops: this task ends here either way
        finally:
            writer.close()

    async def _answer(
        self, received: Received, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        answer = self._script(received)
        if self._delay_s + answer.delay_s:
            await asyncio.sleep(self._delay_s + answer.delay_s)
        if answer.status != 200:
            writer.write(_plain(answer.status, answer.headers, _error(answer)))
        elif received.body.get("stream"):
            await self._stream(received, answer, reader, writer)
        else:
            writer.write(_plain(200, answer.headers, _reply(received.path, answer)))
        await writer.drain()

    async def _stream(
        self, received: Received, answer: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(head.encode())
        for sent, chunk in enumerate(_chunks(received, answer)):
            if sent == answer.cut_after:
                raise ConnectionResetError("cut, as scripted")
            if sent == answer.stall_after:
                await reader.read()  # returns when the client has gone
                raise ConnectionResetError("left while stalled, as scripted")
            if sent == answer.fail_after:
                _write_chunk(writer, f"data: {json.dumps(_error(answer))}\n\n")
                break
            _write_chunk(writer, f"data: {json.dumps(chunk)}\n\n")
            await writer.drain()
            await asyncio.sleep(0)
        _write_chunk(writer, "data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")


async def _read(reader: asyncio.StreamReader) -> Received | None:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Received(method=method, path=path, headers=headers, body=json.loads(body) if body else None)


def _plain(status: int, headers: Mapping[str, str], value: object) -> bytes:
    body = json.dumps(value).encode()
    extra = "".join(f"{name}: {text}\r\n" for name, text in headers.items())
    head = f"HTTP/1.1 {status} -\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
    return head.encode() + body


def _reply(path: str, answer: Answer) -> dict[str, Any]:
    common = {"id": "scripted", "created": 1, "model": "scripted"}
    if path.endswith("/responses"):
        content = [{"type": "output_text", "text": answer.text, "annotations": []}]
        message = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": content}
        counts = answer.usage or {}
        usage = {
            "input_tokens": counts.get("prompt_tokens", 0),
            "output_tokens": counts.get("completion_tokens", 0),
            "total_tokens": counts.get("total_tokens", 0),
            "input_tokens_details": counts.get("prompt_tokens_details", {}),
            "output_tokens_details": {"reasoning_tokens": 0},
        }
        return {**common, "object": "response", "created_at": 1, "output": [message], "usage": usage}
    if path.endswith("/chat/completions"):
        choice: dict[str, Any] = {"message": {"role": "assistant", "content": answer.text}}
        kind = "chat.completion"
    else:
        choice, kind = {"text": answer.text}, "text_completion"
    choices = [{"index": 0, "finish_reason": "stop", **choice}]
    return {**common, "object": kind, "choices": choices, "usage": answer.usage}


def _error(answer: Answer) -> dict[str, Any]:
    return {"error": {"message": answer.text, "type": "scripted", "code": None, "param": None}}


def _chunks(received: Received, answer: Answer) -> list[dict[str, Any]]:
    """One chunk a word, then the end as the endpoint says it; usage where it was asked for."""
    words = answer.text.split(" ")
    if received.path.endswith("/responses"):
        place = {"item_id": "m", "output_index": 0, "content_index": 0, "logprobs": []}
        kind = "response.output_text.delta"
        events: list[dict[str, Any]] = [{"type": kind, "delta": word, **place} for word in words]
        events.append({"type": "response.completed", "response": _reply(received.path, answer)})
        return [{**event, "sequence_number": number} for number, event in enumerate(events)]
    if received.path.endswith("/chat/completions"):
        kind = "chat.completion.chunk"
        choices: list[dict[str, Any]] = [{"delta": {"role": "assistant", "content": word}} for word in words]
        choices.append({"delta": {}, "finish_reason": "stop"})
    else:
        kind = "text_completion"
        choices = [{"text": word} for word in words] + [{"text": "", "finish_reason": "stop"}]
    common = {"id": "scripted", "object": kind, "created": 1, "model": "scripted"}
    chunks = [{**common, "choices": [{"index": 0, "finish_reason": None, **choice}]} for choice in choices]
    if (received.body.get("stream_options") or {}).get("include_usage") and answer.usage is not None:
        chunks.append({**common, "choices": [], "usage": answer.usage})
    return chunks


def _write_chunk(writer: asyncio.StreamWriter, text: str) -> None:
    data = text.encode()
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
