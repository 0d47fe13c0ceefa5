"""What the emulator's HTTP tests share."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
from openai import AsyncOpenAI

from agentbatch.emulator import Emulator, serve

EXACT = {"ignore_eos": True}
TOOL: Any = {"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}


@contextlib.asynccontextmanager
async def running(**options: Any) -> AsyncIterator[tuple[Emulator, AsyncOpenAI]]:
    options = {"workers": 1, "speedup": 5000.0, **options}
    async with (
        serve(**options) as emulator,
        AsyncOpenAI(base_url=emulator.urls[0], api_key=options.get("token") or "x", max_retries=0) as client,
    ):
        yield emulator, client


@contextlib.asynccontextmanager
async def raw(emulator: Emulator, **options: Any) -> AsyncIterator[aiohttp.ClientSession]:
    root = emulator.urls[0].removesuffix("/v1")
    async with aiohttp.ClientSession(base_url=root, **options) as session:
        yield session


def user(text: str) -> Any:
    return [{"role": "user", "content": text}]


async def until(condition: Any) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - what is awaited happens in the server
            await asyncio.sleep(0.005)
