"""The live display of a batch of one's own, and what binds in a replay's line."""

import io

import anyio
import pytest
from rich.console import Console

from agentbatch import AgentBatch, SyncAgentBatch, Trajectory
from agentbatch.report import live as display
from agentbatch.report import progress
from agentbatch.report.live import lines, live
from agentbatch.testing import virtual_clock


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)


async def solve(trajectory: Trajectory, _: int) -> None:
    for _ in range(3):
        turn = trajectory.begin_turn("/chat/completions", streamed=False)
        await anyio.sleep(2.0)
        turn.finish()
        async with trajectory.environment("browser-of-many-words"):
            await anyio.sleep(10.0)


def watched(console: Console, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Run a batch whose environment limit binds under the display; returns what its lines said at every end."""
    monkeypatch.setattr(display, "stderr", lambda: console)
    said: list[str] = []

    async def main() -> None:
        async with AgentBatch(cs=6, ce={"browser-of-many-words": 1}) as batch:

            async def one(trajectory: Trajectory, n: int) -> None:
                await solve(trajectory, n)
                said.append(lines(batch.statistics(), 12))

            with live(batch, total=12):
                await batch.map(one, range(12))
            assert not batch.hub.listening

    virtual_clock.run(main)
    return said


def test_it_says_what_runs_what_waits_and_what_binds(monkeypatch: pytest.MonkeyPatch) -> None:
    console = terminal()
    said = watched(console, monkeypatch)
    counts, binds = said[4].splitlines()
    assert counts == "4/12 ended  CS 6/6  0 in flight  CE browser-of-many-words 1/1 +4 waiting"
    assert binds.startswith("CE 'browser-of-many-words' binds: ")
    assert binds.endswith("one more slot is worth up to +100 % throughput")
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "12/12 ended  CS 0/6" in shown, "as it was left"
    assert max(map(len, shown.splitlines())) < 100, "80 columns and control characters"


def test_it_shows_nothing_where_stderr_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), width=80)
    watched(console, monkeypatch)
    assert console.file.getvalue() == ""  # type: ignore[attr-defined]


def test_a_replays_line_says_what_binds_in_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    console = terminal()
    monkeypatch.setattr(progress, "stderr", lambda: console)
    monkeypatch.setattr(progress, "REFRESH_S", 0.0)

    async def main() -> None:
        with progress.ReplayProgress() as shown:
            hook = shown.hook("a title of many words", 12)
            async with AgentBatch(cs=6, ce={"browser-of-many-words": 1}, on_event=hook) as batch:
                await batch.map(solve, range(12))

    virtual_clock.run(main)
    line = [line for line in console.file.getvalue().splitlines() if "12/12 done" in line][-1]  # type: ignore[attr-defined]
    assert line.rstrip().endswith(" s CE brows +100 %")
    assert len(line.replace("\x1b[2K", "")) <= 80


def test_it_shows_a_synchronous_batch_too(monkeypatch: pytest.MonkeyPatch) -> None:
    console = terminal()
    monkeypatch.setattr(display, "stderr", lambda: console)
    with SyncAgentBatch(cs=3, ce=2) as batch:
        with live(batch, total=6):
            results = batch.map(lambda trajectory, n: trajectory.act(str, n), range(6))
        assert [result.ok for result in results] == [True] * 6
    assert "6/6 ended  CS 0/3" in console.file.getvalue()  # type: ignore[attr-defined]
