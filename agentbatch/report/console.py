"""Where people read: tables on stdout, progress on stderr, so that JSON on stdout stays clean."""

from __future__ import annotations

from rich.console import Console


def stdout() -> Console:
    """Return a console on stdout."""
    return Console()


def stderr() -> Console:
    """Return a console on stderr."""
    return Console(stderr=True)
