"""Many simulations over several processes: the same results, in order; what happens when one dies or cannot be."""

import os
import signal
from dataclasses import replace
from typing import Any

import psutil
import pytest
from simulate_support import batch

from agentbatch.errors import StartUpError, UsageError
from agentbatch.simulate import SimulateOptions, SimulationResult, simulate
from agentbatch.simulate.grid import Grid
from agentbatch.simulate.pool import Helper, available_cores, simulate_all

OPTIONS = [SimulateOptions(cs=cs, ce={"default": ce}) for cs in (3, 9) for ce in (1, 2)]


def collected(jobs: int, options: Any = OPTIONS) -> tuple[dict[int, SimulationResult], int]:
    """Simulate; return results by place and how many trajectories were told to have ended."""
    results: dict[int, SimulationResult] = {}
    ended = 0

    def done(place: int, result: SimulationResult, wall_s: float) -> None:
        assert place not in results
        assert wall_s > 0
        results[place] = result

    def advanced(count: int) -> None:
        nonlocal ended
        ended += count

    simulate_all(batch(0), options, done, jobs=jobs, advanced=advanced)
    return results, ended


def children() -> list[psutil.Process]:
    return [one for one in psutil.Process().children() if "spawn_main" in " ".join(one.cmdline())]


def test_processes_give_what_one_gives() -> None:
    here, told_here = collected(1)
    spread, told_spread = collected(3)
    assert dict(sorted(spread.items())) == here == {n: simulate(batch(0), one) for n, one in enumerate(OPTIONS)}
    assert told_here == told_spread == 4 * 20
    assert children() == []


def test_one_simulation_runs_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Helper, "__enter__", lambda self: pytest.fail("a process was started"))
    assert len(collected(8, OPTIONS[:1])[0]) == 1
    assert len(collected(1)[0]) == 4


def test_a_process_that_dies_is_an_error_that_says_so() -> None:
    with Helper() as helper:
        helper.send(batch(0))
        [child] = children()
        os.kill(child.pid, signal.SIGKILL)
        with pytest.raises(StartUpError, match=r"ended by signal 9 .* use fewer with --jobs"):
            helper.receive()
    assert children() == []


def test_whoever_stops_half_way_leaves_no_process() -> None:
    def done(place: int, result: SimulationResult, wall_s: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate_all(batch(0), OPTIONS * 5, done, jobs=2)
    assert children() == []


def test_what_a_process_refuses_is_raised_here() -> None:
    with Helper() as helper:
        helper.send([])  # no workload: simulate() refuses it
        helper.send(OPTIONS[0])
        with pytest.raises(UsageError, match="no trajectory"):
            helper.receive()


def test_nothing_runs_where_one_cannot_be() -> None:
    with pytest.raises(UsageError, match="add a limit"):
        collected(1, [OPTIONS[0], replace(OPTIONS[0], ce={"bash": 1})])
    with pytest.raises(UsageError, match="jobs"):
        collected(0)
    assert available_cores() >= 1


def test_a_grid_is_every_combination_the_last_axis_first() -> None:
    grid = Grid(cs=[8, 4], ce=[None, {"default": 2}, {"default": 2, "bash": 1}], cache_ratio=[None, 1.5],
                env_policy=["fcfs", "caas"], cache_memory_gb=35.0, workers=2)  # fmt: skip
    cells = grid.cells()
    assert len(cells) == 24
    said = [(cell.parameters["cs"], cell.parameters["ce"], cell.parameters["cache_ratio"]) for cell in cells[::2]]
    both = {"default": 2, "bash": 1}
    assert said[:6] == [(8, None, 0.09), (8, None, 1.5), (8, 2, 0.09), (8, 2, 1.5), (8, both, 0.09), (8, both, 1.5)]
    assert [cell.options.env_policy for cell in cells[:4]] == ["fcfs", "caas", "fcfs", "caas"]
    assert {cell.options.inference_only for cell in cells if cell.parameters["ce"] is None} == {True}
    ratio = cells[2].options
    assert ratio.config.state_slots == int(35e9 * 1.5 / 2.5 / ratio.engine.state_bytes)
    assert ratio.config.kv_tokens == int(35e9 / 2.5 / ratio.engine.kv_bytes)
