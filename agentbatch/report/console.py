"""Where people read: tables on stdout, progress on stderr, so that JSON on stdout stays clean."""

from __future__ import annotations

import sys

from rich.console import Console


def stdout() -> Console:
    """Return a console on stdout; figures and file names stay as they are, none is coloured or taken for markup."""
    return Console(highlight=False, markup=False, emoji=False)


def stderr() -> Console:
    """Return a console on stderr, like `stdout`."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def say(console: Console, *lines: str) -> None:
    """Print each line; words wrap at a terminal's width, nothing does in a pipe or a file."""
    for line in lines:
        console.print(line, soft_wrap=not console.is_terminal)


def complain(message: str) -> None:
    """Print one line on stderr, as every error and note of the command line looks."""
    print(f"agentbatch: {' '.join(message.split())}", file=sys.stderr)
