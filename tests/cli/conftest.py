"""The command line in this process, one emulator for all tests of this folder, and small traces."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import structlog

from agentbatch.cli import main
from agentbatch.emulator import Spawned, spawn

SPEEDUP = 400


@dataclass(frozen=True)
class Ran:
    """How a command ended and what it printed."""

    status: int
    out: str
    err: str

    @property
    def figures(self) -> dict[str, Any]:
        """The one JSON object on stdout."""
        return dict(json.loads(self.out))

    @property
    def complaint(self) -> str:
        """The one line of a command that was refused."""
        assert (self.status, self.out) == (2, ""), self
        assert self.err.startswith("agentbatch: "), self
        assert self.err.count("\n") == 1, self
        return self.err.removeprefix("agentbatch: ").strip()


Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Return a function that runs `agentbatch` with the arguments it is given."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # typer sets its own
    monkeypatch.setenv("COLUMNS", "80")

    def command(*arguments: object) -> Ran:
        with pytest.raises(SystemExit) as exited:
            main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return Ran(int(exited.value.code or 0), printed.out, printed.err)

    yield command
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def emulator() -> Iterator[Spawned]:
    """Two emulated workers in a child process."""
    with spawn(workers=2, speedup=SPEEDUP) as workers:
        yield workers


@pytest.fixture
def against(emulator: Spawned) -> list[str]:
    """Arguments that replay against the emulator."""
    return [part for url in emulator.urls for part in ("--url", url)]


def trajectory(name: str, turns: Sequence[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    return {"id": name, "domain": "d", "turns": list(turns), **fields}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A trace of five short trajectories, some stages of them named bash."""
    lines = [
        trajectory(
            f"t{number}",
            [
                {"prompt_tokens": 200 + 10 * number, "output_tokens": 5, "env_s": 2.0, "env_name": "bash"},
                {"prompt_tokens": 300 + 10 * number, "output_tokens": 5, "env_s": 3.0},
                {"prompt_tokens": 400 + 10 * number, "output_tokens": 5},
            ],
            system_tokens=100,
        )
        for number in range(5)
    ]
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path
