"""Shows a batch's notices on stderr while it runs; structlog's default is stdout, which is for JSON."""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
from typing import Any

import structlog


def notes_on_stderr() -> None:
    """Print every log message of this process as one plain line on stderr."""
    structlog.configure(
        processors=[structlog.processors.format_exc_info, _render],
        logger_factory=lambda *names: structlog.PrintLogger(sys.stderr),  # looked up anew: a progress bar replaces it
        cache_logger_on_first_use=False,
    )


def _render(logger: Any, method: str, record: MutableMapping[str, Any]) -> str:
    trace = record.get("exception")
    return f"agentbatch: note: {record['event']}" + (f"\n{trace}" if trace else "")
