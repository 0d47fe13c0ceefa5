"""Reads the record of a run, also of one that was killed while it wrote its last line."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from agentbatch.errors import TraceError
from agentbatch.events import EVENT_TYPES, SCHEMA, Event, RunStarted
from agentbatch.trace.ledger import Ledger
from agentbatch.trace.lines import Line, complaint, field_path, invalid, parse, parse_object, read_lines, shown

_ADAPTERS: dict[str, TypeAdapter[Event]] = {kind.event: TypeAdapter(kind) for kind in EVENT_TYPES}


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFile:
    """The events of one recorded run, in file order."""

    path: Path
    events: tuple[Event, ...]
    torn: str | None = None
    """What is wrong with the last line, which a killed writer left unfinished; None where nothing is."""

    @property
    def duplicates(self) -> tuple[Event, ...]:
        """Events that stand in the file a second time; a recorder never writes one."""
        return tuple(Ledger.of(self.events).duplicates)


def read_run(path: str | os.PathLike[str]) -> RunFile:
    """Read a file that `Recorder` wrote.

    A last line that is not whole is left out and described in `RunFile.torn`. A last line that is whole but for its
    line end counts.

    Raises:
        TraceError: the file does not read, is empty, holds two runs, or comes from a newer agentbatch; or any line but
            a torn last one is no event. Names file, line and field.
    """
    events: list[Event] = []
    torn: str | None = None
    run_line = 0
    lines: chain[Line | None] = chain(read_lines(path), (None,))
    for line, following in pairwise(lines):
        assert line is not None  # noqa: S101 - for mypy: only the last of all is None
        if following is None:
            try:
                parse(line.data)
            except ValueError as error:
                torn = f"line {line.number}, the last, {error} ({len(line.data)} bytes left out)"
                break
        event = _event(path, line)
        if isinstance(event, RunStarted):
            if run_line:
                raise complaint(
                    path, line.number, f"a second run starts here, the first on line {run_line}: one file holds one run"
                )
            run_line = line.number
        events.append(event)
    if not events and torn is None:
        raise TraceError(f"{os.fspath(path)} is empty: no run was recorded in it")
    return RunFile(path=Path(path), events=tuple(events), torn=torn)


def _event(path: str | os.PathLike[str], line: Line) -> Event:
    record = parse_object(path, line)
    tag = record.get("event")
    adapter = _ADAPTERS.get(tag) if isinstance(tag, str) else None
    if adapter is None:
        raise _unknown(path, line.number, record)
    if tag == RunStarted.event:
        _check_schema(path, line.number, record)
    _check_finite(path, line.number, record)
    try:
        return adapter.validate_json(line.data, strict=True)
    except ValidationError as error:
        raise invalid(path, line.number, error) from error


def _unknown(path: str | os.PathLike[str], number: int, record: dict[str, Any]) -> TraceError:
    if "event" in record:
        known = ", ".join(_ADAPTERS)
        return complaint(path, number, f"unknown event {shown(record['event'])}: expected one of {known}", "event")
    if "turns" in record or "about" in record:
        return complaint(path, number, "this is a trace, not the record of a run: replay it with `agentbatch replay`")
    return complaint(path, number, "missing", "event")


def _check_schema(path: str | os.PathLike[str], number: int, record: dict[str, Any]) -> None:
    schema = record.get("schema", SCHEMA)
    if isinstance(schema, int) and schema > SCHEMA:
        raise complaint(
            path,
            number,
            f"written by agentbatch {record.get('version', '?')} as schema {schema}; this one reads schemas up to "
            f"{SCHEMA}: upgrade it (pip install -U agentbatch)",
            "schema",
        )


def _check_finite(path: str | os.PathLike[str], number: int, record: Mapping[str, Any], *outer: str) -> None:
    for name, value in record.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise complaint(path, number, f"expected a finite number, got {shown(value)}", field_path((*outer, name)))
        if isinstance(value, dict):
            _check_finite(path, number, value, *outer, name)
