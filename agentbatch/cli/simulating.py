"""Carries out one `agentbatch simulate`: reads or makes the workload, simulates every cell, shows figures."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from agentbatch.cli.named import find_trace, find_workload, is_generated
from agentbatch.cli.notes import notes_on_stderr
from agentbatch.errors import UsageError
from agentbatch.events import Event, TrajectoryEnded
from agentbatch.replay.bound import RECORDED
from agentbatch.report.aggregate import aggregate, merge_notices
from agentbatch.report.console import complain, say, stdout
from agentbatch.report.grid import alike_line, caption, grid_table, varied
from agentbatch.report.grid_progress import GridProgress
from agentbatch.report.heat_map import check_axes, check_heat_map, draw_heat_map
from agentbatch.report.table import binding_lines, figures_table, note_lines, spread_columns
from agentbatch.sim.presets import DEFAULT_PRESET, PRESETS
from agentbatch.simulate.grid import Cell, Grid
from agentbatch.simulate.options import SimulateOptions
from agentbatch.simulate.pool import available_cores, simulate_all
from agentbatch.simulate.recorded import all_recorded
from agentbatch.simulate.runner import SimulationResult, check, simulate
from agentbatch.trace.profile import noisy, profile_of, read_profile
from agentbatch.trace.recorder import Recorder
from agentbatch.trace.scaling import scale_environment
from agentbatch.trace.workload import TraceTrajectory, cap, limit

SHOWN_FAILURES = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What a command line asked for beside the grid; see `agentbatch simulate --help`."""

    trace: str
    limit: int | None
    env_cap_s: float | None
    env_scale: float
    user_cap_s: float | None
    seed: int
    orders: int
    profile: Path | None
    profile_noise: float
    preset: str | None
    """As given; None leaves the choice to the workload."""
    shaping: Sequence[str]
    """Options that shape modelled workers, as far as given."""
    given: Mapping[str, str]
    """Options that are not at their defaults, as a command line has them, by parameter."""
    jobs: int | None
    heat_map: Path | None
    record: Path | None
    as_json: bool


@dataclass(frozen=True, slots=True)
class Run:
    """One simulation that ended: its place among all, its result, the wall seconds it took."""

    place: int
    result: SimulationResult
    wall_s: float

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as JSON has them."""
        return {**self.result.to_dict(), "wall_s": round(self.wall_s, 6)}


def carry_out(asked: Asked, grid: Grid) -> None:
    """Simulate every cell of `grid` in every order and print the figures.

    Everything that can be refused is refused before anything runs. When interrupted, what has finished is shown.
    """
    notes_on_stderr()
    workload = _workload(asked)
    cells = replace(_profiled(asked, _served(asked, grid, workload)), source=Path(asked.trace).name).cells()
    _check_outputs(asked, cells)
    options = [_ordered(cell.options, order, asked) for cell in cells for order in range(asked.orders)]
    for one in options:
        check(workload, one)
    runs: list[Run] = []
    try:
        with GridProgress(len(options), len(workload)) as progress:
            _simulate(workload, options, asked, runs, progress)
    except KeyboardInterrupt:
        complain(f"interrupted after {len(runs)} of {len(options)} simulations")
        _show(cells, runs, asked, len(workload))
        raise
    _show(cells, runs, asked, len(workload))


def _workload(asked: Asked) -> list[TraceTrajectory]:
    return _shaped(limit(find_workload(asked.trace, asked.seed), asked.limit), asked)


def _shaped(workload: Sequence[TraceTrajectory], asked: Asked) -> list[TraceTrajectory]:
    capped = [cap(one, env_cap_s=asked.env_cap_s, user_cap_s=asked.user_cap_s) for one in workload]
    return [scale_environment(one, asked.env_scale) for one in capped]


def _served(asked: Asked, grid: Grid, workload: Sequence[TraceTrajectory]) -> Grid:
    """Add to the grid what serves: what was named, else recorded seconds where they are known and workers no matter."""
    if asked.preset == RECORDED and asked.shaping:
        raise UsageError(
            f"{', '.join(asked.shaping)} shapes modelled workers, and --preset recorded models none: leave it out, or "
            f"name one of {', '.join(PRESETS)}"
        )
    if asked.preset is not None:
        return replace(grid, preset=asked.preset)
    modelled = asked.shaping or None in grid.ce or not all_recorded(workload)
    return replace(grid, preset=DEFAULT_PRESET if modelled else RECORDED)


def _profiled(asked: Asked, grid: Grid) -> Grid:
    """Add the profile to the grid: with environment, and without where some cell has none."""
    longest_first = "longest-first" in grid.admission
    if asked.profile is None:
        if longest_first:
            raise UsageError("--admission longest-first needs --profile: the record of an earlier run, or a trace")
        if asked.profile_noise:
            raise UsageError("--profile-noise blurs a profile: give one with --profile, or leave the noise out")
        return grid
    if not longest_first:
        raise UsageError("--profile is for --admission longest-first: choose that, or leave the profile out")
    bare = replace(asked, env_cap_s=0.0, user_cap_s=0.0)
    return replace(
        grid,
        profile=_profile(str(asked.profile), asked),
        inference_profile=_profile(str(asked.profile), bare) if None in grid.ce else None,
    )


def _profile(given: str, asked: Asked) -> dict[str, float]:
    path = find_trace(Path(given))
    if not path.exists() and is_generated(given):
        return profile_of(_shaped(find_workload(given, asked.seed), asked))
    return read_profile(path, env_cap_s=asked.env_cap_s, user_cap_s=asked.user_cap_s, env_scale=asked.env_scale)


def _ordered(options: SimulateOptions, order: int, asked: Asked) -> SimulateOptions:
    profile = options.profile
    if profile is not None:
        profile = noisy(profile, asked.profile_noise, f"{asked.seed}/{order}")  # as a replay blurs it
    return replace(options, order=order, profile=profile)


def _check_outputs(asked: Asked, cells: Sequence[Cell]) -> None:
    if asked.heat_map is not None:
        check_axes([cell.parameters for cell in cells])
        check_heat_map(asked.heat_map)
    if asked.record is not None:
        if len(cells) > 1:
            raise UsageError(f"--record is for one simulation, not for a grid of {len(cells)}: give one value each")
        from agentbatch.replay.orders import check_records  # noqa: PLC0415 - loads the SDK and the runtime

        check_records(str(asked.record), asked.orders)


def _simulate(
    workload: Sequence[TraceTrajectory],
    options: Sequence[SimulateOptions],
    asked: Asked,
    runs: list[Run],
    progress: GridProgress,
) -> None:
    def done(place: int, result: SimulationResult, wall_s: float) -> None:
        runs.append(Run(place, result, wall_s))
        progress.run_done()

    if asked.record is None:
        simulate_all(
            workload, options, done, jobs=available_cores() if asked.jobs is None else asked.jobs,
            advanced=progress.advance,
        )  # fmt: skip
        return
    for place, one in enumerate(options):
        began_s = time.perf_counter()
        result = _recorded(workload, one, asked.record, progress)
        done(place, result, time.perf_counter() - began_s)


def _recorded(
    workload: Sequence[TraceTrajectory], options: SimulateOptions, path: Path, progress: GridProgress
) -> SimulationResult:
    from agentbatch.replay.orders import record_path  # noqa: PLC0415 - see _check_outputs

    with Recorder(record_path(str(path), options.order) or path) as recorder:

        def listen(event: Event) -> None:
            recorder.write(event)
            if isinstance(event, TrajectoryEnded):
                progress.advance(1)

        return simulate(workload, options, on_event=listen)


def _show(cells: Sequence[Cell], runs: Sequence[Run], asked: Asked, trajectories: int) -> None:
    """Print the figures of every cell that has any, on stdout; nothing where none has."""
    if not runs:
        return
    shown: list[dict[str, Any]] = []
    for number, cell in enumerate(cells):
        mine = sorted((run for run in runs if run.place // asked.orders == number), key=lambda run: run.place)
        if mine:
            shown.append({**cell.parameters, **aggregate([run.to_dict() for run in mine])})
    axes = varied([cell.parameters for cell in cells])
    shared = caption(cells[0].parameters, axes, asked.given)
    if asked.as_json:
        for cell_figures in shown:
            typer.echo(json.dumps(cell_figures))
    elif len(cells) == 1:
        _show_one(shown[0], runs, shared)
    else:
        console = stdout()
        console.print(grid_table(shown, axes, caption=shared, width=console.width))
        alike = alike_line(list({cell.parameters["cs"] for cell in cells}), trajectories)
        say(console, *alike, *note_lines(merge_notices([cell_figures["notices"] for cell_figures in shown])))
    if asked.heat_map is not None:
        draw_heat_map(asked.heat_map, shown, axes)
        complain(f"note: makespans drawn to {asked.heat_map}")


def _show_one(figures: Mapping[str, Any], runs: Sequence[Run], shared: str) -> None:
    failures = [failure for run in runs for failure in run.result.failures]
    for failed in failures[:SHOWN_FAILURES]:
        complain(f"trajectory {failed.key} failed: {failed.error}")
    if len(failures) > SHOWN_FAILURES:
        complain(f"{len(failures) - SHOWN_FAILURES} more trajectories failed")
    console = stdout()
    columns: Mapping[str, Mapping[str, Any]] = {"simulated": figures} if len(runs) == 1 else spread_columns(figures)
    console.print(figures_table(columns, caption=shared))
    if len(runs) > 1:
        makespans = "  ".join(f"{one['makespan_s']:,.0f}" for one in figures["orders"])
        say(console, f"makespan of each order, s: {makespans}")
    say(console, *binding_lines(figures), *note_lines(figures["notices"]))
