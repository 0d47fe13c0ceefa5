"""Hands events to whoever listens: recorder, progress display, metrics, the user's own hook."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from agentbatch.events import Event, Notice
from agentbatch.runtime.clock import BatchClock

Hook = Callable[[Event], None]

def _logger() -> Any:
    """Return structlog's logger, on stderr where nobody has configured one: stdout is for a program's results."""
    if structlog.is_configured():
        return structlog.get_logger("agentbatch")
    return structlog.wrap_logger(structlog.PrintLogger(sys.stderr))


MAX_NOTICES = 1000
"""Notices kept in memory; all of them reach the hooks and the record."""


class Hub:
    """Calls each hook with each event; a hook that raises is reported once and dropped."""

    def __init__(self, clock: BatchClock) -> None:
        self._clock = clock
        self._hooks: list[Hook] = []
        self._announced: set[str] = set()
        self.notices: deque[Notice] = deque(maxlen=MAX_NOTICES)
        self.notice_count = 0

    @property
    def listening(self) -> bool:
        """Whether anybody wants events; building them costs time that an unwatched batch need not spend."""
        return bool(self._hooks)

    def add(self, hook: Hook) -> None:
        """Call `hook` with every event from now on."""
        self._hooks.append(hook)

    def remove(self, hook: Hook) -> None:
        """Stop calling `hook`; one that is not there, as after it raised, is fine."""
        if hook in self._hooks:
            self._hooks.remove(hook)

    def emit(self, event: Event) -> None:
        """Pass `event` to every hook, in the order they were added."""
        for hook in tuple(self._hooks):
            try:
                hook(event)
            except Exception as error:
                if hook not in self._hooks:  # it failed on the notice of another one's failure, and is dropped already
                    continue
                self._hooks.remove(hook)
                self.notice("hook-failed", f"event hook {hook!r} raised {error!r} and gets no more events")

    def notice(
        self,
        kind: str,
        message: str,
        *,
        label: str | None = None,
        once: bool = False,
        details: Mapping[str, str | int | float] | None = None,
    ) -> None:
        """Tell people (structlog) and programs (an event) about something that must not be silent.

        Args:
            kind: short, stable name of the kind of notice.
            message: a sentence, with the fix where there is one.
            label: the trajectory concerned.
            once: only the first notice of this kind is given.
            details: figures or names for programs; never keys or text of prompts.
        """
        if once:
            if kind in self._announced:
                return
            self._announced.add(kind)
        notice = Notice(
            at_s=self._clock.now(), kind=kind, message=message, label=label, details=dict(details or {})
        )
        self.notices.append(notice)
        self.notice_count += 1
        _logger().warning(message, kind=kind, label=label, **(details or {}))
        self.emit(notice)
