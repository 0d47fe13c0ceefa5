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

MOST_PANELS = 30
ACROSS = 3
"""Panels in a row."""


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


def draw_heat_map(path: Path, cells: Sequence[Mapping[str, Any]]) -> None:
    """Draw the makespans of `cells`, parameters and figures of each, to a PNG file; overwrites it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - see check_heat_map
    from matplotlib.colors import LogNorm  # noqa: PLC0415 - likewise
    from matplotlib.figure import Figure  # noqa: PLC0415 - likewise

    across, down, rest = _sides(varied(cells))
    columns, rows = _values(cells, across), _values(cells, down)
    panels = list(product(*(_values(cells, axis) for axis in rest)))
    found = {tuple(value_text(cell[axis]) for axis in (across, down, *rest)): cell["makespan_s"] for cell in cells}
    seconds = [one for one in found.values() if one]
    if not seconds:
        raise UsageError("--heat-map: no simulation had a makespan to draw")
    norm = LogNorm(min(seconds), max(*seconds, min(seconds) * 1.001))
    wide = min(len(panels), ACROSS)
    high = math.ceil(len(panels) / wide)
    size = (wide * (1.6 + 0.9 * len(columns)) + 0.8, high * (1.4 + 0.5 * len(rows)) + 0.6)
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    for place, panel in enumerate(panels, 1):
        axes = figure.add_subplot(high, wide, place)
        grid = [[found.get((column, row, *panel)) for column in columns] for row in rows]
        _panel(axes, grid, norm)
        axes.set_xticks(range(len(columns)), columns)
        axes.set_yticks(range(len(rows)), rows)
        axes.set_xlabel(AXES[across])
        axes.set_ylabel(AXES[down])
        axes.set_title(", ".join(f"{AXES[axis]} {value}" for axis, value in zip(rest, panel, strict=True)), fontsize=9)
    figure.suptitle("makespan, s")
    figure.savefig(path, format="png", dpi=120)


def _panel(axes: Axes, grid: list[list[float | None]], norm: Normalize) -> None:
    missing = math.nan
    axes.imshow([[missing if one is None else one for one in row] for row in grid], norm=norm, cmap="viridis_r",
                aspect="auto")  # fmt: skip
    for row, values in enumerate(grid):
        for column, value in enumerate(values):
            text = "–" if value is None else f"{value:,.0f}"
            dark = value is not None and float(norm(value)) > 0.6
            axes.text(column, row, text, ha="center", va="center", fontsize=8, color="white" if dark else "black")


def _sides(axes: Sequence[str]) -> tuple[str, str, list[str]]:
    """Return what goes across, what goes down, and what makes panels; CS across where it varies."""
    across = axes[0]
    down = axes[1] if len(axes) > 1 else next(name for name in AXES if name != across)
    return across, down, list(axes[2:])


def _values(cells: Sequence[Mapping[str, Any]], axis: str) -> list[str]:
    return list(dict.fromkeys(value_text(cell[axis]) for cell in cells))
