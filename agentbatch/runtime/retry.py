"""When a model call is tried again: explicit, bounded in number and time, spread out, every attempt an event.

An attempt whose worker turns out dead moves to a live one at once, which uses up no retry: `send_or_move`.
Tried again: no connection, a time-out of the connection, 408, 409, 429 and 5xx. Never: any other 4xx (a context that
is too long stays too long), nor anything after the first byte of a stream. A server's `x-should-retry` decides where it
is sent. The first attempt runs outside tenacity, which costs 80 to 120 us a call; tenacity drives the rest.

Waits are decorrelated jitter: uniform between the first wait and three times the last one, under a ceiling (M. Brooker,
"Exponential Backoff And Jitter", 2015). A Retry-After is honoured in full, plus up to a quarter of it but at least a
second, so that clients refused together do not come back together.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, Protocol, TypeVar

import anyio
import openai
import tenacity

from agentbatch.errors import UsageError
from agentbatch.runtime.checks import check_seconds
from agentbatch.runtime.clock import backend_time
from agentbatch.runtime.turn import Turn

R = TypeVar("R")

SPREAD_S = 1.0
"""Least width of the jitter on top of a Retry-After."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryPolicy:
    """How often and for how long a model call that may succeed later is tried again.

    Args:
        attempts: tries in all, >= 1.
        within_s: wall seconds from the first try after which none begins, > 0; no wait is begun that would end later.
        first_wait_s: least wait, wall seconds, > 0. most_wait_s: most, unless the server asks for more.
        statuses: HTTP statuses that are tried again.

    Raises:
        UsageError: a number out of range.
    """

    attempts: int = 3
    within_s: float = 600.0
    first_wait_s: float = 0.5
    most_wait_s: float = 30.0
    statuses: frozenset[int] = field(default=frozenset({408, 409, 429, *range(500, 600)}), repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.attempts, bool) or not isinstance(self.attempts, int) or self.attempts < 1:
            raise UsageError(f"attempts must be a whole number of at least 1, not {self.attempts!r}")
        for name in ("within_s", "first_wait_s", "most_wait_s"):
            check_seconds(name, getattr(self, name))
        if self.first_wait_s > self.most_wait_s:
            raise UsageError(
                f"first_wait_s and most_wait_s must be in that order, not {self.first_wait_s!r} and "
                f"{self.most_wait_s!r}"
            )
        try:
            object.__setattr__(self, "statuses", frozenset(self.statuses))
        except TypeError:  # met at the first failure otherwise, in the place of the server's own error
            raise UsageError(f"statuses must be numbers, such as {{429, 503}}, not {self.statuses!r}") from None

    def retries(self, error: BaseException) -> bool:
        """Tell whether the same request may succeed later."""
        if isinstance(error, openai.APIStatusError):
            told = error.response.headers.get("x-should-retry")
            return told == "true" if told in ("true", "false") else error.status_code in self.statuses
        return isinstance(error, openai.APIConnectionError)

    def wait_s(self, error: BaseException | None, last_s: float | None) -> float:
        """Return how long to wait after `error`, wall seconds, when the wait before was `last_s`."""
        asked = asked_wait_s(error)
        if asked is not None:
            return asked + random.uniform(0.0, max(SPREAD_S, asked / 4))  # noqa: S311 - spreading, not cryptography
        longest = 3 * (self.first_wait_s if last_s is None else last_s)
        return min(self.most_wait_s, random.uniform(self.first_wait_s, longest))  # noqa: S311 - likewise


def asked_wait_s(error: BaseException | None) -> float | None:
    """Read Retry-After, in seconds or as a date, or `retry-after-ms`, where the server sent one that makes sense."""
    if not isinstance(error, openai.APIStatusError):
        return None
    headers = error.response.headers
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        text = headers.get(name)
        if text is not None:
            seconds = _seconds(text, unit)
            if seconds is not None and 0 < seconds < float("inf"):
                return seconds
    return None


def _seconds(text: str, unit: float) -> float | None:
    try:
        return float(text) * unit
    except ValueError:
        pass
    try:
        return parsedate_to_datetime(text).timestamp() - time.time()
    except (ValueError, OverflowError):  # no date, or one with a zone that is out of this world
        return None


class Attempted(Protocol):
    """A turn as its retries see it, asynchronous or in a thread."""

    def attempt_failed(self, error: BaseException, retry_in_s: float | None) -> None:
        """Report a failed attempt; None for `retry_in_s`: it was the last."""

    def notice(self, kind: str, message: str) -> None:
        """Say once what must not be silent."""


class Retrial:
    """The retries of one turn, for tenacity, asynchronous or not: when to stop, how long to wait, what to report.

    Args:
        policy: the limits. turn: whose attempts these are.
        attempts: tries in all, where the call has its own number.
        now: a monotonic clock, wall seconds, callable where the attempts run.
    """

    def __init__(self, policy: RetryPolicy, turn: Attempted, attempts: int, now: Callable[[], float]) -> None:
        self._policy = policy
        self._turn = turn
        self._failed: Exception | None = None
        self._attempts = attempts
        self._now = now
        self._began = now()
        self._last_s: float | None = None

    def goes_on_after(self, error: Exception) -> bool:
        """Keep the first failure for `meet_first`; False, and reported, where it is the last."""
        if self._attempts <= 1 or not self._policy.retries(error):
            self._turn.attempt_failed(error, None)
            return False
        self._failed = error
        return True

    def meet_first(self) -> None:
        """Raise the first failure, once: tenacity meets it as its attempt 1, and waits."""
        first, self._failed = self._failed, None
        if first is not None:
            raise first

    def options(self) -> dict[str, Any]:
        """Return what tenacity needs, all but the sleep."""
        return {
            "stop": self.stop, "wait": self.wait, "retry": self.retry, "before_sleep": self.report, "reraise": True,
        }  # fmt: skip

    def report(self, state: tenacity.RetryCallState) -> None:
        """Report a failed attempt and the wait after it."""
        error = _error(state)
        if error is not None and state.next_action is not None:
            self._turn.attempt_failed(error, state.next_action.sleep)

    def retry(self, state: tenacity.RetryCallState) -> bool:
        """Tell whether what was raised may be tried again."""
        error = _error(state)
        return error is not None and self._policy.retries(error)

    def wait(self, state: tenacity.RetryCallState) -> float:
        """Return the next wait, wall seconds."""
        self._last_s = self._policy.wait_s(_error(state), self._last_s)
        return self._last_s

    def stop(self, state: tenacity.RetryCallState) -> bool:
        """Tell whether the attempts are used up, or the time would be before the next begins."""
        if state.attempt_number >= self._attempts:
            return True
        if self._now() - self._began + state.upcoming_sleep <= self._policy.within_s:
            return False
        asked = asked_wait_s(_error(state))
        if asked is not None and asked > self._policy.most_wait_s:
            self._turn.notice(
                "retry-after",
                f"the server asked to wait {asked:,.0f} s, longer than the {self._policy.within_s:,.0f} s that a call "
                "may be tried for: it failed; raise RetryPolicy.within_s to wait that long",
            )
        return True


def _error(state: tenacity.RetryCallState) -> BaseException | None:
    """Return what the last attempt raised."""
    return state.outcome.exception() if state.outcome is not None else None


async def send_or_move(send: Callable[[], Awaitable[R]], turn: Turn) -> R:
    """Await `send`, again at once for as long as its worker goes out and another is live: at most once per worker."""
    while True:
        try:
            return await send()
        except Exception as error:
            if not turn.moves(error):
                raise
            turn.attempt_failed(error, 0.0)


async def call_with_retries(send: Callable[[], Awaitable[R]], turn: Turn, policy: RetryPolicy, attempts: int) -> R:
    """Await `send` up to `attempts` times under one turn, moves off dead workers not counted.

    Raises:
        Exception: what the last attempt raised.
    """
    retrial = Retrial(policy, turn, attempts, backend_time())
    try:
        return await send_or_move(send, turn)
    except Exception as error:
        if not retrial.goes_on_after(error):
            raise

    async def again() -> R:
        retrial.meet_first()
        return await send_or_move(send, turn)

    try:
        return await tenacity.AsyncRetrying(sleep=anyio.sleep, **retrial.options())(again)
    except Exception as error:
        turn.attempt_failed(error, None)
        raise
