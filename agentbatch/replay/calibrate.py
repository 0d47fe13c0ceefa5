"""Measures how a server counts our text, before the timed run: three calls of one output token each."""

from __future__ import annotations

from typing import Any

from agentbatch.errors import StartUpError
from agentbatch.replay.text import Calibration, text

SHORT, LONG = 600, 2600
"""Characters of the probes; long enough that a tokenizer's rounding does not matter."""


async def calibrate(client: Any, model: str) -> Calibration | None:
    """Return how the server behind `client` counts tokens; None when it reports no usage.

    Args:
        client: an `AsyncOpenAI`, not tied to a trajectory.
        model: name to send.

    Raises:
        openai.OpenAIError: the server refuses a plain chat completion.
        StartUpError: its counts make no sense: more text gave no more tokens.
    """

    async def count(*messages: tuple[str, str]) -> int | None:
        reply = await client.chat.completions.create(
            model=model, max_tokens=1, messages=[{"role": role, "content": content} for role, content in messages]
        )
        return None if reply.usage is None else int(reply.usage.prompt_tokens)

    short = await count(("user", text("calibrate/a", SHORT)))
    long = await count(("user", text("calibrate/b", LONG)))
    both = await count(("system", text("calibrate/c", SHORT)), ("user", text("calibrate/a", SHORT)))
    if short is None or long is None or both is None:
        return None
    rate = (long - short) / (LONG - SHORT)
    if rate <= 0:
        raise StartUpError(
            f"the server counted {short} tokens for {SHORT} characters and {long} for {LONG}: prompt lengths cannot be "
            "replayed against it; does it truncate prompts?"
        )
    message = both - short - SHORT * rate
    return Calibration(rate, message, short - SHORT * rate - message)


async def model_name(client: Any) -> str:
    """Return the first model that the server lists.

    Raises:
        StartUpError: it lists none; name one instead.
    """
    async for model in client.models.list():
        return str(model.id)
    raise StartUpError("the server lists no model: name one with --model")
