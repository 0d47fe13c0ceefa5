"""What a replay asks of the server itself: its speed-up, and an empty cache."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit, urlunsplit

import openai

FLUSH_WITHIN_S = 10.0


def server_root(base_url: str) -> str:
    """Return scheme and host of an OpenAI base URL: SGLang's own endpoints lie there, not under /v1."""
    parts = urlsplit(base_url)
    return urlunsplit((parts.scheme, parts.netloc, "", "", ""))


async def flush_cache(client: Any, base_urls: tuple[str, ...]) -> list[str]:
    """Empty the prefix cache of every worker; return one sentence for each that would not."""
    refused = []
    for url in base_urls:
        try:
            await client.post(f"{server_root(url)}/flush_cache", cast_to=object, options={"timeout": FLUSH_WITHIN_S})
        except openai.OpenAIError as error:
            refused.append(f"{url} did not flush its cache ({type(error).__name__}): hits of earlier runs may count")
    return refused


async def emulator_speedup(client: Any, base_url: str) -> float | None:
    """Return the speed-up of an emulated worker; None when the server is not one."""
    try:
        info = await client.get(f"{server_root(base_url)}/server_info", cast_to=object)
    except openai.OpenAIError:
        return None
    about = info.get("agentbatch_emulator") if isinstance(info, dict) else None
    return float(about["speedup"]) if isinstance(about, dict) and "speedup" in about else None
