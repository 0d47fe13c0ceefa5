"""Writes a run's events to a file while the batch runs: one JSON object a line, one `os.write` an event.

A line is `{"event": "<tag>", …fields}`. Because each event reaches the kernel whole, killing the process tears at most
the last line, and only where the kernel itself was cut short (hermes#112575). Nothing is flushed to the disk itself: a
power failure may lose the last seconds.

The file is made with mode 0600. A record holds task keys, server addresses and the text of errors; whether others on
the machine may read those is for its owner to decide.
"""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType

from agentbatch.errors import StartUpError, UsageError
from agentbatch.events import EVENT_TYPES, Event, Notice

DECIMALS = 6
"""Floats are kept to this many decimals: a microsecond."""

FILE_MODE = 0o600

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str)
_AS_THEY_ARE = frozenset({str, int, bool, type(None)})
_FIELDS = {kind: tuple(field.name for field in fields(kind)) for kind in EVENT_TYPES}


@dataclass(frozen=True, kw_only=True, slots=True)
class RecorderStatistics:
    """What a recorder has done so far."""

    events: int
    """Events written whole."""
    bytes: int
    dropped: int
    """Events that came after the recorder was closed or had given up."""
    open: bool


class Recorder:
    """Appends events to a new file; usable from several threads and as a context manager.

    Args:
        path: file to make; an existing one is never overwritten or added to.
        on_error: called once with the error when writing fails, as on a full disk; recording then stops and the batch
            goes on. Without it, `write` raises that error once.

    Raises:
        StartUpError: the file exists, its folder does not, or it cannot be made.
    """

    def __init__(self, path: str | os.PathLike[str], *, on_error: Callable[[StartUpError], None] | None = None) -> None:
        self.path = Path(path)
        self._on_error = on_error
        self._lock = threading.Lock()
        self._events = self._bytes = self._dropped = 0
        self._fd: int | None = _create(self.path)

    def write(self, event: Event) -> None:
        """Append `event`; without effect, but counted, once the recorder is closed or has given up.

        Raises:
            StartUpError: writing failed, the first time only, where there is no `on_error`.
            UsageError: a time or count of the event is NaN or infinite; nothing is written.
        """
        data = encode(event)
        with self._lock:
            if self._fd is None:
                self._dropped += 1
                return
            try:
                rest = memoryview(data)
                while rest:  # a second round happens on a disk that fills up, and yields its error
                    rest = rest[os.write(self._fd, rest) :]
            except OSError as error:
                cause = error
                self._give_up()
            else:
                self._events += 1
                self._bytes += len(data)
                return
        self._report(f"cannot write to {self.path}: {cause.strerror or cause}; {self._events} events are kept", cause)

    def close(self) -> None:
        """Close the file; further calls do nothing.

        Raises:
            StartUpError: the file system reports a late error, where there is no `on_error`.
        """
        with self._lock:
            fd, self._fd = self._fd, None
        if fd is None:
            return
        try:
            os.close(fd)
        except OSError as error:
            self._report(f"{self.path} may lack its last events: {error.strerror or error}", error)

    def statistics(self) -> RecorderStatistics:
        """Return how much was written."""
        with self._lock:
            return RecorderStatistics(
                events=self._events, bytes=self._bytes, dropped=self._dropped, open=self._fd is not None
            )

    def _give_up(self) -> None:
        """Take half a line back, so that what is kept reads; close."""
        assert self._fd is not None  # noqa: S101 - for mypy
        with suppress(OSError):
            os.ftruncate(self._fd, self._bytes)
        with suppress(OSError):
            os.close(self._fd)
        self._fd = None
        self._dropped += 1

    def _report(self, message: str, cause: OSError) -> None:
        failure = StartUpError(message)
        failure.errno = cause.errno
        failure.__cause__ = cause
        if self._on_error is None:
            raise failure
        self._on_error(failure)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._fd is None else "open"
        return f"<Recorder {str(self.path)!r} {state}, {self._events} events, {self._bytes} bytes>"


def encode(event: Event) -> bytes:
    """Return the line of `event`, its line end included; lone surrogates in texts become question marks.

    Raises:
        UsageError: a number is NaN or infinite where a reader needs a number.
    """
    record: dict[str, object] = {"event": event.event}
    for name in _FIELDS[type(event)]:
        value = getattr(event, name)
        if type(value) in _AS_THEY_ARE:  # most fields; asking for Mapping costs more than all else here
            pass
        elif isinstance(value, float):
            value = _figure(event, name, value)
        elif isinstance(value, Mapping):
            value = {
                key: _figure(event, name, entry) if isinstance(entry, float) else entry for key, entry in value.items()
            }
        record[name] = value
    return _ENCODER.encode(record).encode("utf-8", "replace") + b"\n"


def _figure(event: Event, name: str, value: float) -> float | str:
    if math.isfinite(value):
        return round(value, DECIMALS)
    if isinstance(event, Notice):
        return str(value)  # details come from anywhere, and may be text
    raise UsageError(f"{type(event).__name__}.{name} holds {value}: the figures of an event are finite")


def _create(path: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_BINARY", 0)
    try:
        return os.open(path, flags, FILE_MODE)
    except FileExistsError as error:
        if path.is_dir():
            raise StartUpError(f"cannot record to {path}: it is a folder; name a file in it") from error
        raise StartUpError(
            f"cannot record to {path}: the file exists, and a record is never overwritten; name another or remove it"
        ) from error
    except FileNotFoundError as error:
        raise StartUpError(f"cannot record to {path}: there is no folder {path.parent}; make it first") from error
    except OSError as error:
        raise StartUpError(f"cannot record to {path}: {error.strerror or error}") from error
