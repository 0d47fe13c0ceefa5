"""Lines of a JSON Lines file, read one at a time, and errors that name the file, the line and the field.

Lives here: reading bytes and wording complaints. What a line means is for `workload` and `run`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic_core
from pydantic import ValidationError

from agentbatch.errors import TraceError

MAX_LINE_BYTES = 64 * 2**20
"""A longer line is refused: it is no trace, and would have to fit into memory whole."""

BOM = b"\xef\xbb\xbf"
MAX_SHOWN_CHARS = 60


@dataclass(frozen=True, slots=True)
class Line:
    """One line that is not blank: its number, from 1, and its bytes without blanks at either end."""

    number: int
    data: bytes


def read_lines(path: str | os.PathLike[str]) -> Iterator[Line]:
    """Yield the lines of a file that are not blank, the last one also where it has no line end.

    Raises:
        TraceError: the file is missing, a folder or unreadable, or a line is longer than `MAX_LINE_BYTES`.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            number = 0
            while raw := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                if len(raw) > MAX_LINE_BYTES:
                    limit = MAX_LINE_BYTES // 2**20
                    raise complaint(path, number, f"is longer than {limit} MiB: this is no file of one record a line")
                data = (raw.removeprefix(BOM) if number == 1 else raw).strip()
                if data:
                    yield Line(number, data)
    except FileNotFoundError as error:
        raise TraceError(f"{path} does not exist") from error
    except IsADirectoryError as error:
        raise TraceError(f"{path} is a folder: name a .jsonl file in it") from error
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror or error}") from error


def first_line(path: str | os.PathLike[str]) -> Line | None:
    """Return the first line of a file that is then read again from its start; None where every line is blank.

    Raises:
        TraceError: as `read_lines`, or it is a pipe or the like, which would go on behind that line, or later still.
    """
    with suppress(OSError):  # `read_lines` says what is wrong
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            name = os.fspath(path)
            raise TraceError(f"{name} is a pipe or a device, and has to be read twice: write it to a file first")
    return next(read_lines(path), None)


def parse(data: bytes) -> Any:
    """Return the JSON value in `data`; NaN and infinities pass, so that a later check can name their field.

    Raises:
        ValueError: not UTF-8 or not JSON; says which, and at which column.
    """
    try:
        return pydantic_core.from_json(data)
    except ValueError as error:
        try:
            data.decode()
        except UnicodeDecodeError as undecodable:
            column = undecodable.start + 1
            raise ValueError(f"is not UTF-8: byte 0x{data[undecodable.start]:02x} at column {column}") from error
        reason = str(error).replace(" at line 1 column ", " at column ")
        raise ValueError(f"is not valid JSON: {reason}") from error


def parse_object(path: str | os.PathLike[str], line: Line) -> dict[str, Any]:
    """Return the JSON object on `line`.

    Raises:
        TraceError: not UTF-8, not JSON, or no object.
    """
    try:
        value = parse(line.data)
    except ValueError as error:
        raise complaint(path, line.number, str(error)) from error
    if not isinstance(value, dict):
        raise complaint(path, line.number, f"expected a JSON object, got {shown(value)}")
    return value


def complaint(path: str | os.PathLike[str], number: int, problem: str, field: str = "") -> TraceError:
    """Build the error for one line: `run.jsonl, line 3, field turns[2].env_s: …`."""
    where = f"{os.fspath(path)}, line {number}"
    return TraceError(f"{where}, field {field}: {problem}" if field else f"{where}: {problem}")


def invalid(path: str | os.PathLike[str], number: int, error: ValidationError) -> TraceError:
    """Build the error for one line from the first thing pydantic found wrong with it."""
    first = error.errors(include_url=False)[0]
    if first["type"] == "missing":
        problem = "missing"
    elif first["type"] == "too_short":
        problem = "expected at least one entry"
    else:
        expected = first["msg"].replace("Input should be", "expected", 1)
        problem = f"{expected}, got {shown(first['input'])}"
    return complaint(path, number, problem, field_path(first["loc"]))


def field_path(location: tuple[int | str, ...]) -> str:
    """Word a location within a record: `("turns", 2, "env_s")` is `turns[2].env_s`."""
    words = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return "".join(words).removeprefix(".")


def shown(value: object) -> str:
    """Return `value` as JSON would have it, cut to a readable length."""
    try:
        text = pydantic_core.to_json(value, inf_nan_mode="constants").decode()
    except ValueError:
        text = repr(value)
    return text if len(text) <= MAX_SHOWN_CHARS else text[:MAX_SHOWN_CHARS] + "…"
