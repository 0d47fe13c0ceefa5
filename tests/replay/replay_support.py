"""For the tests of this folder: short builders of workloads, one replay with its events, and servers with odd ways."""

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from aiohttp import web

from agentbatch.events import Event
from agentbatch.replay.options import ReplayOptions
from agentbatch.replay.runner import ReplayResult, replay
from agentbatch.trace import TraceTrajectory, TraceTurn

E = TypeVar("E")


def turn(prompt: int, output: int, **fields: Any) -> TraceTurn:
    return TraceTurn(prompt_tokens=prompt, output_tokens=output, **fields)


def trajectory(name: str, *turns: TraceTurn, **fields: Any) -> TraceTrajectory:
    return TraceTrajectory(id=name, turns=turns, **{"domain": "d", **fields})


def batch(count: int = 6) -> list[TraceTrajectory]:
    """Make trajectories of two to four turns with short waits, all different."""
    made = []
    for number in range(count):
        turns, prompt = [], 300 + 40 * number
        for step in range(2 + number % 3):
            turns.append(turn(prompt, 10 + number, env_s=1.0 + 0.5 * step, env_name="bash" if step % 2 else None))
            prompt += 10 + number + 120
        made.append(trajectory(f"t{number}", *turns, system_tokens=150))
    return made


async def replayed(
    workload: list[TraceTrajectory], urls: Iterable[str], **fields: Any
) -> tuple[ReplayResult, list[Event]]:
    """Replay once and return the result and all events."""
    events: list[Event] = []
    options = ReplayOptions(**{"base_urls": tuple(urls), "cs": 4, "ce": {"default": 2}, **fields})
    return await replay(workload, options, on_event=events.append), events


def of(kind: type[E], events: Iterable[Event], key: str | None = None) -> list[E]:
    """Return the events of one kind, those of one trajectory where `key` is given."""
    found = [event for event in events if isinstance(event, kind)]
    return found if key is None else [event for event in found if event.label.endswith(f"-{key}")]  # type: ignore[attr-defined]


@dataclass
class OddServer:
    """An OpenAI-compatible server that counts a token for four characters, and lacks what it is told to lack."""

    ignore_eos: bool = True
    usage: bool = True
    flush: bool = True
    models: tuple[str, ...] = ("odd",)
    blind: bool = False  # counts every prompt alike, as a server does that truncates
    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)

    def count(self, messages: list[dict[str, Any]]) -> int:
        return 7 if self.blind else 3 + sum(5 + -(-len(message["content"]) // 4) for message in messages)

    async def list_models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": name, "object": "model"} for name in self.models]})

    async def flush_cache(self, request: web.Request) -> web.Response:
        return web.Response(status=200 if self.flush else 404)

    async def complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        if "ignore_eos" in body and not self.ignore_eos:
            return web.json_response({"error": {"message": "Unrecognized argument: ignore_eos"}}, status=400)
        tokens = body["max_tokens"] if self.ignore_eos else min(3, body["max_tokens"])
        usage = {"prompt_tokens": self.count(body["messages"]), "completion_tokens": tokens, "total_tokens": 0}
        reply = {"id": "r", "created": 0, "model": "odd", "object": "chat.completion"}
        if not body.get("stream"):
            choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "abc "}}
            return web.json_response({**reply, "choices": [choice], "usage": usage if self.usage else None})
        answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await answer.prepare(request)
        for place in range(tokens):
            delta = {"content": "abc ", "reasoning_content": None} if place else {"reasoning_content": "hmm "}
            await answer.write(_line({**reply, "choices": [{"index": 0, "delta": delta}]}))
        if self.usage:
            await answer.write(_line({**reply, "choices": [], "usage": usage}))
        await answer.write(b"data: [DONE]\n\n")
        return answer


def _line(chunk: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


@asynccontextmanager
async def odd_server(**ways: Any) -> AsyncIterator[OddServer]:
    """Serve an `OddServer` on a port of its own while the block runs."""
    server = OddServer(**ways)
    app = web.Application(client_max_size=2**26)
    app.router.add_get("/v1/models", server.list_models)
    app.router.add_post("/v1/chat/completions", server.complete)
    app.router.add_post("/flush_cache", server.flush_cache)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        yield server
    finally:
        await runner.cleanup()
