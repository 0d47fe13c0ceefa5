"""What an error says: in words, whether a time-out or a broken connection is behind it, and how to count it."""

from __future__ import annotations

import subprocess

import openai

from agentbatch.errors import TrajectoryCancelled
from agentbatch.events import Outcome

MAX_ERROR_CHARS = 500


def describe(error: BaseException) -> str:
    """Return type and message of `error` on one bounded line, with what broke the connection where one broke."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    cause = broken_connection(error)
    if cause is not None and cause is not error:
        text += f" [{type(cause).__name__}: {cause}]"
    return " ".join(text.split())[:MAX_ERROR_CHARS]


def broken_connection(error: BaseException | None) -> BaseException | None:
    """Return what refused or broke a connection, in the chain of causes of `error`; None where nothing did.

    The SDK's aiohttp transport reports both as a connect time-out. By name, since the libraries' classes are not ours
    to import.
    """
    seen = 0
    while error is not None and seen < 10:
        names = {kind.__name__ for kind in type(error).__mro__}
        if "ClientConnectionError" in names and not isinstance(error, TimeoutError):
            return error
        error, seen = error.__cause__ or error.__context__, seen + 1
    return None


def outcome_of(error: BaseException) -> Outcome:
    """Tell a failure from a cancellation (asyncio's and trio's are no `Exception`, a thread gets ours)."""
    return "failed" if isinstance(error, Exception) and not isinstance(error, TrajectoryCancelled) else "cancelled"


def is_timeout(error: BaseException | None) -> bool:
    """Tell whether a time-out, ours, the SDK's or a tool's, is what `error` says."""
    if isinstance(error, openai.APITimeoutError):
        return broken_connection(error) is None
    return isinstance(error, (TimeoutError, subprocess.TimeoutExpired))
