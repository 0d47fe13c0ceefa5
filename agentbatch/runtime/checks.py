"""Are numbers what they must be? Asked before anything runs, whatever type they came in."""

from __future__ import annotations

import sys

from agentbatch.errors import UsageError


def is_number(value: object) -> bool:
    """Tell whether `value` is a number that is not a truth value; infinities and not-a-number are."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def check_seconds(name: str, value: float) -> float:
    """Return `value` if it is a positive finite number.

    Raises:
        UsageError: it is not; the message names the option.
    """
    if not is_number(value) or not 0 < value <= sys.float_info.max:
        raise UsageError(f"{name} must be a positive number of seconds, not {value!r}")
    return value
