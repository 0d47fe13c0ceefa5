"""Finds what goes by a name: `sample`, the trace that is installed with the package, and generated workloads."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import agentbatch
from agentbatch.errors import TraceError
from agentbatch.report.console import complain
from agentbatch.trace.convert import read_converted
from agentbatch.trace.workload import TraceTrajectory


def find_trace(given: Path) -> Path:
    """Return the file that a command was given; `sample` is the packaged one unless there is a file of that name."""
    return sample_path() if str(given) == "sample" and not given.exists() else given


def sample_path() -> Path:
    """Find the sample: inside the installed package, or in the checkout it was installed from."""
    packaged = Path(str(files("agentbatch"))) / "examples" / "sample.jsonl"
    checkout = Path(next(iter(agentbatch.__path__))).parent / "examples" / "traces" / "sample.jsonl"
    for path in (packaged, checkout):
        if path.is_file():
            return path
    raise TraceError("the sample trace is not installed: give a trace file instead")


def find_workload(given: str, seed: int) -> list[TraceTrajectory]:
    """Return the trajectories that a command was given: of a trace or run file, or by name, the sample's or generated.

    A file goes before both names.

    Args:
        given: path or name.
        seed: of a generated workload.

    Raises:
        TraceError: the file does not read, or there is none and the name is no workload's.
    """
    path = find_trace(Path(given))
    if path.exists() or path.suffix or len(path.parts) > 1:  # no name looks like this: say that the file is missing
        converted = read_converted(path)
        for note in converted.notes:
            complain(f"note: {note}")
        return list(converted.trajectories)
    from agentbatch.workloads import WORKLOADS, generate  # noqa: PLC0415 - most commands are given files

    if is_generated(given):
        return generate(given, seed=seed)
    raise TraceError(f"there is no file {given}; generated workloads are called {', '.join(WORKLOADS)}, and sample")


def is_generated(given: str) -> bool:
    """Tell whether `given` is the name of a generated workload."""
    from agentbatch.workloads import WORKLOADS  # noqa: PLC0415 - see find_workload

    return given in WORKLOADS
