"""`agentbatch demo`: three ways side by side, in words and as JSON."""

from pathlib import Path
from typing import Any

import pytest

from agentbatch.cli import three_ways
from agentbatch.cli.named import sample_path
from agentbatch.replay.bound import expected_makespan_s
from agentbatch.replay.pace import choose_speedup
from agentbatch.replay.routes import Routes
from agentbatch.sim.presets import DEFAULT_PRESET, preset
from agentbatch.trace import cap, read_workload

ARGUMENTS = ("--speedup", 300)


def test_the_table_fits_80_columns_and_says_what_to_look_at(run: Any, trace: Path) -> None:
    done = run("demo", "--trace", trace, *ARGUMENTS)
    assert done.status == 0
    assert done.err.startswith("5 recorded trajectories, 15 turns, on 2 emulated workers at 300 × real time; ")
    table, _, rest = done.out.partition("└")
    assert max(map(len, table.splitlines())) <= 80
    assert [cell.strip() for cell in table.splitlines()[2].split("┃")[2:-1]] == [
        "unified 3",
        "CS 50 FCFS",
        "CS 50 CAAS",
    ]
    for row in ("makespan, s", "against the first", "lower bound, s", "completed"):
        assert row in table
    assert "unfinished" not in table
    for line in ('Look at "against the first"', "Every reply was the same", "lower bound"):
        assert line in rest
    assert max(map(len, rest.splitlines())) <= 100


def test_json_has_the_figures_of_each_way(run: Any, trace: Path) -> None:
    figures = run("demo", "--trace", trace, *ARGUMENTS, "--json").figures
    assert list(figures["ways"]) == ["unified", "fcfs", "caas"]
    assert figures["replies_identical"] is True
    assert (figures["cs"], figures["ce"], figures["workers"]) == (50, 3, 2)
    for way in figures["ways"].values():
        assert (way["completed"], way["failed"]) == (5, 0)
        assert way["lower_bound_s"] <= way["makespan_s"]
    assert len({way["replies_digest"] for way in figures["ways"].values()}) == 1


def test_replies_that_differ_are_said_to(run: Any, trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replay, seeds = three_ways.replay, iter(range(3))

    async def another_seed(workload: Any, options: Any, **rest: Any) -> Any:
        return await replay(workload, three_ways.replace(options, seed=next(seeds)), **rest)

    monkeypatch.setattr(three_ways, "replay", another_seed)
    assert "Replies were NOT the same" in run("demo", "--trace", trace, *ARGUMENTS).out


def test_the_sample_is_there_and_its_slowest_way_fits() -> None:
    """The other two take half as long at most, so that all three stay well under two minutes."""
    workload = [
        cap(one, env_cap_s=three_ways.WAIT_CAP_S, user_cap_s=three_ways.WAIT_CAP_S)
        for one in read_workload(sample_path())
    ]
    engine, routes = preset(DEFAULT_PRESET), Routes({"default": three_ways.CE})
    slowest_s, fast_s = (
        expected_makespan_s(workload, cs=cs, routes=routes, engine=engine, inference_only=False)
        for cs in (three_ways.CE, three_ways.CS)
    )
    speedup = choose_speedup(workload, slowest_s, three_ways.WALL_S)
    assert (slowest_s + 2 * fast_s) / speedup <= 100
