"""When a model call is tried again: explicit, bounded, spread out, and every attempt an event.

An attempt whose worker turns out dead moves to a live one at once, which uses up no retry: `send_or_move`.
A 400 is never retried, nor anything after the first byte of a stream. The first attempt runs outside tenacity, which
costs 80 to 120 us a call; tenacity drives the rest.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
import openai
import tenacity

from agentbatch.runtime.turn import Turn

R = TypeVar("R")

RETRIED_STATUS = frozenset({408, 409, 429})
MAX_WAIT_S = 30.0
MAX_TOTAL_S = 600.0


def is_retryable(error: BaseException) -> bool:
    """Tell whether the same request may succeed later: no connection, time-out, 408, 409, 429 or 5xx."""
    if isinstance(error, openai.APIStatusError):
        return error.status_code in RETRIED_STATUS or error.status_code >= 500
    return isinstance(error, openai.APIConnectionError)


def _asked_wait_s(error: BaseException | None) -> float | None:
    """Read Retry-After in seconds, where the server sent one that makes sense."""
    if not isinstance(error, openai.APIStatusError):
        return None
    try:
        seconds = float(error.response.headers.get("retry-after", ""))
    except ValueError:
        return None
    return min(seconds, MAX_WAIT_S) if seconds > 0 else None


def wait_s(state: tenacity.RetryCallState) -> float:
    """Wait what the server asked for plus up to a quarter, else full jitter under a doubling ceiling from 1 s."""
    error = state.outcome.exception() if state.outcome is not None else None
    asked = _asked_wait_s(error)
    if asked is not None:
        return asked * random.uniform(1.0, 1.25)  # noqa: S311 - spreading retries, not cryptography
    return random.uniform(0.05, min(MAX_WAIT_S, 2.0 ** (state.attempt_number - 1)))  # noqa: S311 - likewise


async def send_or_move(send: Callable[[], Awaitable[R]], turn: Turn) -> R:
    """Await `send`, again at once for as long as its worker goes out and another is live: at most once per worker."""
    while True:
        try:
            return await send()
        except Exception as error:
            if not turn.moves(error):
                raise
            turn.attempt_failed(error, 0.0)


async def call_with_retries(send: Callable[[], Awaitable[R]], turn: Turn, attempts: int) -> R:
    """Await `send` up to `attempts` times under one turn, moves off dead workers not counted.

    Raises:
        Exception: what the last attempt raised.
    """
    try:
        return await send_or_move(send, turn)
    except Exception as error:
        if attempts <= 1 or not is_retryable(error):
            turn.attempt_failed(error, None)
            raise
        failed: Exception | None = error

    async def again() -> R:
        nonlocal failed
        if failed is not None:  # tenacity meets the first failure as its attempt 1, and waits
            first, failed = failed, None
            raise first
        return await send_or_move(send, turn)

    def report(state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        if error is not None and state.next_action is not None:
            turn.attempt_failed(error, state.next_action.sleep)

    retrying = tenacity.AsyncRetrying(
        sleep=anyio.sleep,
        stop=tenacity.stop_after_attempt(attempts) | tenacity.stop_after_delay(MAX_TOTAL_S),
        wait=wait_s,
        retry=tenacity.retry_if_exception(is_retryable),
        before_sleep=report,
        reraise=True,
    )
    try:
        return await retrying(again)
    except Exception as error:
        turn.attempt_failed(error, None)
        raise
