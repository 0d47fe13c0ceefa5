"""Recorded workloads, numbers only: one trajectory a line, as in `examples/traces` (spec §7).

A line is `{"id", "domain", "turns": [{"prompt_tokens", "output_tokens", "env_s"?, "user_s"?, …}, …], …}`. Blank lines
are passed over, and so is a first line `{"about": …}`, which says where the file comes from and how it was cut. Keys
not known here are ignored. `write_workload` writes such a file.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from io import FileIO
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from agentbatch.errors import StartUpError, TraceError, UsageError
from agentbatch.trace.lines import complaint, invalid, parse_object, read_lines, shown

MAX_TOKENS = 2**31 - 1
MAX_SECONDS = 1e9
"""Thirty years: nothing recorded takes longer, and sums stay finite."""
DIGITS = 6
"""Decimals of written seconds, as in run files."""

Tokens = Annotated[int, Field(ge=0, le=MAX_TOKENS)]
Seconds = Annotated[float, Field(ge=0, le=MAX_SECONDS, allow_inf_nan=False)]


def _names(value: Any) -> str | tuple[str, ...]:
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple) and all(isinstance(name, str) for name in value):
        return tuple(value)
    raise PydanticCustomError("names", "expected a string or a list of strings")


Names = Annotated[str | tuple[str, ...], BeforeValidator(_names)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", protected_namespaces=())


class TraceTurn(_Record):
    """One inference turn and what followed it; seconds are 0 to `MAX_SECONDS`."""

    prompt_tokens: Tokens
    """Length of the whole prompt, its reused part included."""
    output_tokens: Tokens
    infer_s: Seconds | None = None
    """How long the recorded server took; a replay does not use it."""
    ttft_s: Seconds | None = None
    env_s: Seconds | None = None
    """Length of the environment stage after the turn."""
    user_s: Seconds | None = None
    """A person's wait before the next turn, which takes no environment slot."""
    env_name: Names | None = None
    env_calls: Annotated[int, Field(ge=0)] | None = None
    role: str | None = None
    """Whose context the turn belongs to, where a trajectory has several (τ²: agent and user_sim)."""


class TraceTrajectory(_Record):
    """One recorded trajectory: at least one turn, in order."""

    id: Annotated[str, Field(min_length=1)]
    """Unique within its file."""
    domain: Annotated[str, Field(min_length=1)]
    """Trajectories of one domain share the first `system_tokens + tool_tokens` of their prompts."""
    turns: Annotated[tuple[TraceTurn, ...], Field(min_length=1)]
    model: str | None = None
    system_tokens: Tokens = 0
    tool_tokens: Tokens = 0
    env_prepare_s: Seconds | None = None
    """Length of the environment stage before turn 1."""

    @property
    def environment_s(self) -> float:
        """Seconds of all its environment stages."""
        return (self.env_prepare_s or 0.0) + math.fsum(turn.env_s or 0.0 for turn in self.turns)


def read_workload(path: str | os.PathLike[str]) -> list[TraceTrajectory]:
    """Read the trajectories of a trace file, in file order.

    Raises:
        TraceError: the file does not read, holds no trajectory, or a line is malformed; names file, line and field.
    """
    trajectories: list[TraceTrajectory] = []
    seen: dict[str, int] = {}
    first = True
    for line in read_lines(path):
        record = parse_object(path, line)
        if "turns" not in record:
            if "about" in record and first:
                first = False
                continue
            _refuse_other_files(path, line.number, record)
        first = False
        try:
            trajectory = TraceTrajectory.model_validate_json(line.data)
        except ValidationError as error:
            raise invalid(path, line.number, error) from error
        if trajectory.id in seen:
            other = seen[trajectory.id]
            raise complaint(path, line.number, f"{shown(trajectory.id)} is the id of line {other} already", "id")
        seen[trajectory.id] = line.number
        trajectories.append(trajectory)
    if not trajectories:
        raise TraceError(
            f"{os.fspath(path)} holds no trajectory: expected one JSON object a line, with id, domain and turns"
        )
    return trajectories


def _refuse_other_files(path: str | os.PathLike[str], number: int, record: dict[str, Any]) -> None:
    if "event" in record:
        raise complaint(
            path, number, "this is the record of a run, not a trace: sum it up with `agentbatch summary`", "event"
        )
    if "about" in record:
        raise complaint(path, number, "only the first line of a trace may say what it is about", "about")


def write_workload(path: str | os.PathLike[str], trajectories: Sequence[TraceTrajectory], about: str) -> None:
    """Write a trace file that `read_workload` reads back as the same trajectories, in their order.

    Args:
        path: file to make; an existing one is never overwritten.
        trajectories: at least one, ids all different. Seconds are written with six decimals, fields at their defaults
            left out.
        about: where they come from and how they were made; goes into the first line.

    Raises:
        UsageError: no trajectory, or two with one id; nothing is written then.
        StartUpError: the file exists, its folder does not, or it cannot be written; no part of a file is left.
    """
    if not trajectories:
        raise UsageError("a trace file needs at least one trajectory")
    ids: set[str] = set()
    for trajectory in trajectories:
        if trajectory.id in ids:
            raise UsageError(f"two trajectories are called {trajectory.id!r}: ids are unique in a trace file")
        ids.add(trajectory.id)
    path = Path(path)
    try:
        with _create(path) as file:
            _write_line(file, {"about": about})
            for trajectory in trajectories:
                _write_line(file, trajectory.model_dump(exclude_defaults=True))
    except StartUpError:
        raise
    except BaseException as error:
        path.unlink(missing_ok=True)  # a part of it would read as a smaller workload
        if isinstance(error, OSError):
            raise StartUpError(f"cannot write {path}: {error.strerror or error}") from error
        raise


def _create(path: Path) -> FileIO:
    try:
        return path.open("xb", buffering=0)
    except FileExistsError as error:
        raise StartUpError(
            f"cannot write {path}: it exists, and a trace is never overwritten; name another or remove it"
        ) from error
    except FileNotFoundError as error:
        raise StartUpError(f"cannot write {path}: there is no folder {path.parent}; make it first") from error
    except OSError as error:
        raise StartUpError(f"cannot write {path}: {error.strerror or error}") from error


def _write_line(file: FileIO, record: dict[str, Any]) -> None:
    line = memoryview(json.dumps(_rounded(record), separators=(",", ":"), ensure_ascii=False).encode() + b"\n")
    while line:  # one write, but where the disk takes a part of it
        line = line[file.write(line) :]


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, DIGITS)
    if isinstance(value, dict):
        return {key: _rounded(part) for key, part in value.items()}
    return [_rounded(part) for part in value] if isinstance(value, list | tuple) else value


def cap(
    trajectory: TraceTrajectory, *, env_cap_s: float | None = None, user_cap_s: float | None = None
) -> TraceTrajectory:
    """Return a copy in which no environment stage and no person's wait is longer than the caps.

    Args:
        trajectory: left as it is.
        env_cap_s: for `env_s` and `env_prepare_s`, seconds >= 0; None leaves them.
        user_cap_s: for `user_s`, seconds >= 0; None leaves them.

    Raises:
        UsageError: a cap is negative or not a number.
    """
    for name, limit_s in (("env_cap_s", env_cap_s), ("user_cap_s", user_cap_s)):
        if limit_s is not None and not limit_s >= 0:
            raise UsageError(f"{name} must be 0 or more seconds, not {limit_s!r}")
    turns = tuple(
        turn.model_copy(update={"env_s": _at_most(turn.env_s, env_cap_s), "user_s": _at_most(turn.user_s, user_cap_s)})
        for turn in trajectory.turns
    )
    prepare_s = _at_most(trajectory.env_prepare_s, env_cap_s)
    return trajectory.model_copy(update={"turns": turns, "env_prepare_s": prepare_s})


def _at_most(seconds: float | None, limit_s: float | None) -> float | None:
    return seconds if seconds is None or limit_s is None else min(seconds, float(limit_s))


def limit(trajectories: Sequence[TraceTrajectory], count: int | None) -> list[TraceTrajectory]:
    """Return the first `count` trajectories, or all where there are fewer or `count` is None.

    Raises:
        UsageError: `count` is below 1.
    """
    if count is not None and count < 1:
        raise UsageError(f"a limit on trajectories must be at least 1, not {count}")
    return list(trajectories[:count])
