"""Reads `--ce`: a number, or `name=N,name=N`; and `--band-s`: seconds, or `auto`."""

from __future__ import annotations

from agentbatch.errors import UsageError
from agentbatch.policy.caas import Band


def parse_limits(text: str) -> dict[str, int]:
    """Return the environment limits by resource; a plain number is the limit of `default`.

    Raises:
        UsageError: not a number of at least 1, or not of the form name=N,…
    """
    limits: dict[str, int] = {}
    for part in text.split(","):
        name, equals, number = (piece.strip() for piece in part.rpartition("="))
        if not equals:
            name = "default"
        # nine digits: a limit that no machine has, and no more than int() takes
        if not name or name in limits or not (number.isdecimal() and len(number) <= 9 and int(number) >= 1):
            raise UsageError(
                f"--ce takes a number of at least 1, or name=N,name=N with names all different, not {text!r}"
            )
        limits[name] = int(number)
    return limits


def parse_band(text: str | None) -> Band | None:
    """Return the width of bands, None where none is given; whether it is above 0 is looked at with the other options.

    Raises:
        UsageError: neither a number nor `auto`.
    """
    if text is None:
        return None
    if text == "auto":
        return "auto"
    try:
        return float(text)
    except ValueError as error:
        raise UsageError(f"--band-s takes seconds above 0, or auto, not {text!r}") from error
