"""A picture of a grid's makespans: one panel for every combination of what neither side of a panel shows.

Needs matplotlib, from the extra `report`; draws without a display and keeps no figure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentbatch.errors import StartUpError, UsageError
from agentbatch.report.grid import AXES, value_text, varied

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

MOST_PANELS = 30
ACROSS = 3
"""Panels in a row."""

LEAST_SPREAD = 1.05
"""Factor that the colours span either side of the middle, at least."""

GREY = "0.8"
"""Where there is no makespan to compare: trajectories failed, or the simulation did not run."""


def check_heat_map(path: Path) -> None:
    """Refuse what could not be drawn, before anything runs.

    Raises:
        UsageError: matplotlib is missing, or the file is no PNG.
        StartUpError: the folder does not exist.
    """
    if path.suffix.lower() != ".png":
        raise UsageError(f"--heat-map draws a PNG: name the file so, not {path.name!r}")
    if not path.parent.is_dir():
        raise StartUpError(f"cannot draw {path}: there is no folder {path.parent}; make it first")
    try:
        import matplotlib.figure  # noqa: F401, PLC0415 - an extra, and slow to load
    except ImportError as error:
        raise UsageError('--heat-map needs matplotlib: pip install "agentbatch[report]"') from error


def check_axes(cells: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a grid that makes no picture, from its parameters alone.

    Raises:
        UsageError: nothing varies, or too much does.
    """
    axes = varied(cells)
    if not axes:
        raise UsageError("--heat-map compares simulations: give one option several values, as in --cs 50,100")
    panels = math.prod(len(_values(cells, axis)) for axis in _sides(axes)[2])
    if panels > MOST_PANELS:
        raise UsageError(f"--heat-map would draw {panels} panels, {MOST_PANELS} at most: vary fewer options at once")


def draw_heat_map(path: Path, cells: Sequence[Mapping[str, Any]], axes: Sequence[str]) -> None:
    """Draw the makespans of `cells`, parameters and figures of each, to a PNG file; overwrites it.

    Args:
        path: of the file.
        cells: those that are done, at least one.
        axes: what varies over the whole grid, at least one; see `varied`.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - see check_heat_map

    figure = heat_map(cells, axes)
    FigureCanvasAgg(figure)
    figure.savefig(path, format="png", dpi=120)


def heat_map(cells: Sequence[Mapping[str, Any]], axes: Sequence[str]) -> Figure:
    """Return the picture; see `draw_heat_map`."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - see check_heat_map

    across, down, rest = _sides(axes)
    columns, rows = _values(cells, across), _values(cells, down)
    panels = list(product(*(_values(cells, axis) for axis in rest)))
    found = {tuple(value_text(cell[axis]) for axis in (across, down, *rest)): cell for cell in cells}
    norm = _scale([cell["makespan_s"] for cell in cells if cell["makespan_s"] and not cell["failed"]])
    wide = min(len(panels), ACROSS)
    high = math.ceil(len(panels) / wide)
    size = (wide * (1.6 + 0.9 * len(columns)) + 0.8, high * (1.4 + 0.5 * len(rows)) + 0.6)
    figure = Figure(figsize=size, layout="constrained")
    for place, panel in enumerate(panels, 1):
        drawn = figure.add_subplot(high, wide, place)
        _panel(drawn, [[found.get((column, row, *panel)) for column in columns] for row in rows], norm)
        drawn.set_xticks(range(len(columns)), columns)
        drawn.set_yticks(range(len(rows)), rows)
        drawn.set_xlabel(AXES[across])
        drawn.set_ylabel(AXES[down])
        drawn.set_title(", ".join(f"{AXES[axis]} {value}" for axis, value in zip(rest, panel, strict=True)), fontsize=9)
    figure.suptitle("makespan, s")
    return figure


def _scale(seconds: Sequence[float]) -> Normalize:
    """Return the colours of makespans: `LEAST_SPREAD` either side of the middle at least, so that noise looks flat."""
    from matplotlib.colors import LogNorm  # noqa: PLC0415 - see check_heat_map

    low, high = min(seconds, default=1.0), max(seconds, default=1.0)
    middle = math.sqrt(low * high)
    return LogNorm(min(low, middle / LEAST_SPREAD), max(high, middle * LEAST_SPREAD))


def _panel(axes: Axes, grid: list[list[Mapping[str, Any] | None]], norm: Normalize) -> None:
    axes.set_facecolor(GREY)
    seconds = [[math.nan if cell is None or cell["failed"] else cell["makespan_s"] or math.nan for cell in row]
               for row in grid]  # fmt: skip
    axes.imshow(seconds, norm=norm, cmap="viridis_r", aspect="auto")
    for row, cells in enumerate(grid):
        for column, cell in enumerate(cells):
            shade = seconds[row][column]
            dark = not math.isnan(shade) and float(norm(shade)) > 0.6
            axes.text(
                column, row, _cell_text(cell), ha="center", va="center", fontsize=8, color="white" if dark else "black"
            )


def _cell_text(cell: Mapping[str, Any] | None) -> str:
    if cell is None:
        return "–"
    if cell["failed"]:
        return f"{math.ceil(cell['failed']):,} failed"
    return "–" if cell["makespan_s"] is None else f"{cell['makespan_s']:,.0f}"


def _sides(axes: Sequence[str]) -> tuple[str, str, list[str]]:
    """Return what goes across, what goes down, and what makes panels; CS across where it varies."""
    across = axes[0]
    down = axes[1] if len(axes) > 1 else next(name for name in AXES if name != across)
    return across, down, list(axes[2:])


def _values(cells: Sequence[Mapping[str, Any]], axis: str) -> list[str]:
    return list(dict.fromkeys(value_text(cell[axis]) for cell in cells))
