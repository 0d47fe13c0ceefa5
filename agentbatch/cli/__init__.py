"""The command line: `agentbatch`. A table for people on a terminal, JSON on stdout with --json, errors on stderr."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; anything the user can mend ends as one line on stderr and exit status 2."""
    from agentbatch.cli.app import app  # noqa: PLC0415 - typer and rich load only when a command runs
    from agentbatch.errors import AgentBatchError  # noqa: PLC0415

    try:
        app()
    except AgentBatchError as error:
        print(f"agentbatch: {error}", file=sys.stderr)
        sys.exit(2)
