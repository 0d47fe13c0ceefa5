"""The two model endpoints, written straight on ASGI because they carry the load."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from agentbatch.emulator.answer import Chunks, whole
from agentbatch.emulator.ask import read_ask
from agentbatch.emulator.engine import Engine, Flight
from agentbatch.emulator.ledger import Ledger
from agentbatch.emulator.problem import HttpProblem
from agentbatch.emulator.script import Script
from agentbatch.errors import UsageError
from agentbatch.wire import ROUTING_KEY_HEADER

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

MAX_BODY_BYTES = 64 * 1024 * 1024
"""Larger bodies are answered with 413."""

CHUNK_WALL_S = 0.025
"""Shortest wall time between two chunks of one stream."""
CHUNKS_PER_WALL_S = 2000
"""Chunks a second over all streams beyond which each stream waits longer."""

_LABEL = ROUTING_KEY_HEADER.lower().encode()
_JSON = [(b"content-type", b"application/json")]
_EVENTS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]


class ModelEndpoint:
    """Serves /v1/chat/completions and /v1/completions of one worker."""

    def __init__(self, engine: Engine, ledger: Ledger, *, context_tokens: int, script: Script | None) -> None:
        self._engine = engine
        self._ledger = ledger
        self._context_tokens = context_tokens
        self._script = script

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; refusals leave as `HttpProblem`."""
        chat = scope["path"] == "/v1/chat/completions"
        body = await _read_body(scope, receive)
        if body is None:
            return
        ask = read_ask(body, chat=chat, context_tokens=self._context_tokens, script=self._script)
        del body
        label = _label(scope)
        try:
            flight = self._engine.submit(ask, label)
        except UsageError as error:
            raise HttpProblem(400, str(error)) from error
        entry = self._ledger.enter(
            label=label, endpoint="chat" if chat else "completions", streamed=ask.stream,
            prompt_tokens=len(ask.prompt), output_tokens=len(ask.answer.tokens),
        )
        watcher = asyncio.get_running_loop().create_task(_until_gone(receive, flight))
        try:
            await (self._stream(flight, send) if ask.stream else self._whole(flight, send))
        finally:
            watcher.cancel()
            self._engine.abort(flight)
            if flight.end is None:
                self._ledger.leave(entry, "failed" if flight.failed else "aborted")
            else:
                self._ledger.leave(entry, "ok", flight.end.cached_tokens)

    async def _whole(self, flight: Flight, send: Send) -> None:
        while flight.end is None:
            await flight.changed()
            _check(flight)
            if flight.gone and flight.end is None:
                raise HttpProblem(503, "the server is shutting down")
        body = whole(flight.ask, f"{flight.rid:08x}", flight.end)
        headers = [*_JSON, (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _stream(self, flight: Flight, send: Send) -> None:
        while not (flight.first or flight.end or flight.gone):
            await flight.changed()
            _check(flight)
        if flight.gone and not flight.first:
            raise HttpProblem(503, "the server is shutting down")
        chunks = Chunks(flight.ask, f"{flight.rid:08x}")
        await send({"type": "http.response.start", "status": 200, "headers": _EVENTS})
        while flight.end is None and not flight.gone:
            chunk = chunks.text(self._engine.produced(flight))
            if chunk:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            if flight.end is None and not flight.gone:
                await flight.changed(max(CHUNK_WALL_S, len(self._engine.flights) / CHUNKS_PER_WALL_S))
                _check(flight)
        if flight.end is not None:
            await send({"type": "http.response.body", "body": chunks.end(flight.end)})


async def _read_body(scope: Scope, receive: Receive) -> bytes | None:
    """Return the whole body, or None when the client went away while sending it."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > MAX_BODY_BYTES:
            raise HttpProblem(413, f"the body is larger than {MAX_BODY_BYTES} bytes")
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        part = message.get("body", b"")
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise HttpProblem(413, f"the body is larger than {MAX_BODY_BYTES} bytes")
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


async def _until_gone(receive: Receive, flight: Flight) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    flight.leave()


def _check(flight: Flight) -> None:
    if flight.failed:
        raise HttpProblem(500, "the engine model failed; see the server's log")


def _label(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == _LABEL:
            return bytes(value).decode("latin-1")
    return None


