"""Measures how a server counts our text, before the timed run: a few calls of one output token each."""

from __future__ import annotations

from typing import Any

import openai

from agentbatch.errors import StartUpError
from agentbatch.replay.text import Calibration, text

SHORT, LONG = 400, 1600
"""Characters of the probes: so long that a tokenizer's rounding hardly matters, so short that any server takes them."""


async def calibrate(client: openai.AsyncOpenAI, model: str) -> Calibration | None:
    """Return how the server behind `client` counts tokens; None when it reports no usage.

    Args:
        client: not tied to a trajectory.
        model: name to send.

    Raises:
        openai.OpenAIError: the server refuses a plain chat completion.
        StartUpError: its counts make no sense: more text gave no more tokens.
    """

    async def count(*messages: tuple[str, str]) -> int | None:
        record: Any = [{"role": role, "content": content} for role, content in messages]
        reply = await client.chat.completions.create(model=model, max_tokens=1, messages=record)
        return None if reply.usage is None else int(reply.usage.prompt_tokens)

    opening = ("user", text("calibrate", SHORT))
    short = await count(opening)
    long = await count(("user", text("calibrate", LONG)))
    talk = await count(opening, ("assistant", text("calibrate/reply", SHORT)), ("user", text("calibrate/next", SHORT)))
    if short is None or long is None or talk is None:
        return None
    rate = (long - short) / (LONG - SHORT)
    if rate <= 0:
        raise StartUpError(
            f"the server counted {short} tokens for {SHORT} characters and {long} for {LONG}: prompt lengths cannot be "
            "replayed against it; does it truncate prompts?"
        )
    message = max(0.0, (talk - short) / 2 - SHORT * rate)
    return Calibration(rate, message, max(0.0, short - SHORT * rate - message))


async def takes_ignore_eos(client: openai.AsyncOpenAI, model: str) -> bool:
    """Tell whether the server can be made to generate an exact number of tokens.

    Raises:
        openai.OpenAIError: the server refuses a plain chat completion.
    """
    try:
        await client.chat.completions.create(
            model=model, max_tokens=1, messages=[{"role": "user", "content": "a"}], extra_body={"ignore_eos": True}
        )
    except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
        if "ignore_eos" in str(error):
            return False
        raise
    return True


async def model_name(client: openai.AsyncOpenAI) -> str:
    """Return the first model that the server lists.

    Raises:
        openai.OpenAIError: it does not list its models.
        StartUpError: it lists none; name one instead.
    """
    async for model in client.models.list():
        return str(model.id)
    raise StartUpError("the server lists no model: name one with --model")
