"""What happens before a timed run: is the server there, how does it count, an empty cache. None of it is recorded."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

import anyio
import openai

from agentbatch.errors import StartUpError
from agentbatch.replay.calibrate import calibrate, model_name, takes_ignore_eos
from agentbatch.replay.options import ReplayOptions
from agentbatch.replay.text import Calibration
from agentbatch.runtime.failure import describe
from agentbatch.runtime.transport import build_http_client

ANSWER_WITHIN_S = 10.0
"""For a server's own endpoints; a first completion may take longer, since a server may still be warming up."""

COMPLETE_WITHIN_S = 120.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """What was learnt about a server, and what a person should know about it."""

    model: str
    calibration: Calibration
    exact: bool
    speedup: float
    notices: tuple[tuple[str, str], ...]
    """(kind, message)"""


async def prepare(options: ReplayOptions) -> Prepared:
    """Learn the server's ways and empty its cache.

    Raises:
        StartUpError: the server cannot be reached, or cannot be replayed against.
    """
    notices: list[tuple[str, str]] = []
    client = openai.AsyncOpenAI(
        api_key=options.api_key or os.environ.get("OPENAI_API_KEY") or "EMPTY",
        base_url=options.base_urls[0],
        http_client=build_http_client(len(options.base_urls), COMPLETE_WITHIN_S),
        timeout=openai.Timeout(COMPLETE_WITHIN_S, connect=ANSWER_WITHIN_S),
    )
    async with client:
        quick = client.with_options(timeout=ANSWER_WITHIN_S, max_retries=0)
        speedup, untold = await _settle_speedup(quick, options.base_urls, options.speedup)
        notices += untold
        try:
            model = options.model or await model_name(quick)
        except openai.OpenAIError as error:
            raise StartUpError(
                f"{options.base_urls[0]} does not list its models ({describe(error)}): check the URL, which usually "
                "ends in /v1, or name a model with --model"
            ) from error
        try:
            exact = await takes_ignore_eos(client, model)
            calibration = await calibrate(client, model)
        except openai.OpenAIError as error:
            raise StartUpError(
                f"{options.base_urls[0]} refused a first chat completion with model {model!r}: {describe(error)}; "
                "check --model and the URL"
            ) from error
        if not exact:
            notices.append(
                ("lengths-not-exact", "lengths not exact: the server refuses ignore_eos, so replies may end early")
            )
        if calibration is None:
            notices.append(
                ("no-usage", "the server reports no usage: prompt lengths are estimated at one token a character")
            )
        if options.flush:
            notices += await _flush_caches(quick, options.base_urls)
    return Prepared(
        model=model,
        calibration=calibration or Calibration(),
        exact=exact,
        speedup=speedup,
        notices=tuple(notices),
    )


def server_root(base_url: str) -> str:
    """Return scheme and host of an OpenAI base URL: SGLang's own endpoints lie there, not under /v1."""
    parts = urlsplit(base_url)
    return urlunsplit((parts.scheme, parts.netloc, "", "", ""))


async def _settle_speedup(
    client: openai.AsyncOpenAI, base_urls: Sequence[str], wanted: float | None
) -> tuple[float, list[tuple[str, str]]]:
    """Return the speed-up to replay at, and a notice for every server that will not run at it, as far as one can tell.

    Raises:
        StartUpError: a server cannot be reached, or is an emulated worker at another speed-up.
    """
    found: dict[str, float | None] = {}

    async def ask(url: str) -> None:
        try:
            info = await client.get(f"{server_root(url)}/server_info", cast_to=object)
        except openai.APIConnectionError as error:
            cause = describe(error.__cause__ or error)
            raise StartUpError(
                f"cannot reach {url}: {cause}; is the server running, and is the URL right (it usually ends in /v1)?"
            ) from error
        except openai.OpenAIError:  # any answer will do: only SGLang and the emulator have this endpoint
            info = None
        about = info.get("agentbatch_emulator") if isinstance(info, dict) else None
        found[url] = float(about["speedup"]) if isinstance(about, dict) and "speedup" in about else None

    await _each(ask, base_urls)
    emulated = [theirs for theirs in found.values() if theirs is not None]
    speedup = wanted if wanted is not None else emulated[0] if emulated else 1.0
    for url in base_urls:
        theirs = found[url]
        if theirs is not None and theirs != speedup:
            advice = "give all workers one speed-up" if wanted is None else f"pass --speedup {theirs:g}"
            raise StartUpError(
                f"{url} is an emulated worker at speed-up {theirs:g} but the replay runs at {speedup:g}: {advice}, or "
                "times would mean nothing"
            )
    if speedup == 1:
        return speedup, []
    return speedup, [
        ("speedup", f"{url} is no emulated worker: at speed-up {speedup:g} waits shrink, but its own work does not")
        for url in base_urls
        if found[url] is None
    ]


async def _flush_caches(client: openai.AsyncOpenAI, base_urls: Sequence[str]) -> list[tuple[str, str]]:
    """Empty the prefix cache of every worker; return a notice for each that would not."""
    refused: dict[str, str] = {}

    async def flush(url: str) -> None:
        try:
            await client.post(f"{server_root(url)}/flush_cache", cast_to=object)
        except openai.OpenAIError as error:
            refused[url] = type(error).__name__

    await _each(flush, base_urls)
    return [
        ("not-flushed", f"{url} did not flush its cache ({refused[url]}): hits of earlier runs may count")
        for url in base_urls
        if url in refused
    ]


async def _each(ask: Callable[[str], Awaitable[None]], urls: Sequence[str]) -> None:
    """Ask every server at once; the first error is raised as it is."""
    errors: list[StartUpError] = []

    async def one(url: str) -> None:
        try:
            await ask(url)
        except StartUpError as error:
            errors.append(error)

    async with anyio.create_task_group() as group:
        for url in urls:
            group.start_soon(one, url)
    if errors:
        raise errors[0]
