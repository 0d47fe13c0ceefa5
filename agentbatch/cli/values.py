"""Reads options that take several values, separated by commas: `--cs 49,98`."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from agentbatch.cli.limits import parse_limits
from agentbatch.errors import UsageError

T = TypeVar("T")


def several(option: str, text: str, read: Callable[[str], T]) -> list[T]:
    """Return the values of `text`, each read by `read`, which raises ValueError with what it takes.

    Raises:
        UsageError: one does not read, or stands twice.
    """
    values: list[T] = []
    for part in text.split(","):
        try:
            value = read(part.strip())
        except ValueError as error:
            raise UsageError(f"{option} takes {error}, or several with commas between them; not {part!r}") from error
        if value in values:
            raise UsageError(f"{option} names {part.strip()} twice: each value is simulated once")
        values.append(value)
    return values


def whole(text: str) -> int:
    """Read a whole number of at least 1."""
    if not (text.isdecimal() and len(text) <= 9 and int(text) >= 1):
        raise ValueError("a whole number of at least 1")
    return int(text)


def positive(text: str) -> float:
    """Read a number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise ValueError("a number above 0")
    return number


def one_of(names: Collection[str]) -> Callable[[str], str]:
    """Return what reads one of `names`."""

    def read(text: str) -> str:
        if text not in names:
            raise ValueError(f"one of {', '.join(names)}")
        return text

    return read


def whole_or_none(option: str, text: str) -> int | None:
    """Read a whole number of at least 1, or `none`.

    Raises:
        UsageError: neither.
    """
    try:
        return None if text == "none" else whole(text)
    except ValueError as error:
        raise UsageError(f"{option} takes {error}, or none; not {text!r}") from error


Limits = Mapping[str, int] | None


def parse_limit_sets(texts: Collection[str]) -> list[Limits]:
    """Return the values of `--ce`: numbers and `none` may share one; limits by name stand in one of their own.

    Raises:
        UsageError: one does not read, or stands twice.
    """
    limits: list[Limits] = []
    for text in texts:
        parts = [text] if "=" in text else text.split(",")
        for part in parts:
            one = None if part.strip() == "none" else parse_limits(part)
            if one in limits:
                raise UsageError(f"--ce names {part.strip()} twice: each value is simulated once")
            limits.append(one)
    return limits
