"""A grid of runs: which parameters vary, and a table of one row a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.table import Table

from agentbatch.report.table import ROWS

AXES = {
    "cs": "CS",
    "ce": "CE",
    "cache_ratio": "ratio",
    "schedule_policy": "schedule",
    "routing": "routing",
    "env_policy": "env policy",
    "admission": "admission",
}
"""Parameters that a grid varies, with their headings, in the order in which they vary: the last one first."""

SHOWN = {
    "makespan_s": "makespan, s",
    "tail_5_s": "L5, s",
    "cache_reuse": "reuse",
    "mean_in_flight": "in flight",
    "failed": "failed",
    "bottleneck": "binds",
}


def value_text(value: Any) -> str:
    """Return a parameter's value as a heading or cell has it."""
    if value is None:
        return "none"
    if isinstance(value, Mapping):
        return ",".join(f"{name}={limit}" for name, limit in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)


def varied(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the axes on which not all cells are alike."""
    return [name for name in AXES if len({value_text(cell[name]) for cell in cells}) > 1]


def grid_table(cells: Sequence[Mapping[str, Any]]) -> Table:
    """Lay cells out, one a row: what varies, then the figures that tell them apart.

    Args:
        cells: parameters and figures of each, as JSON has them; at least one.
    """
    show: dict[str, Callable[[Any], str]] = {key: show for key, _, show in ROWS}
    columns = [key for key in SHOWN if key != "failed" or any(cell[key] for cell in cells)]
    axes = varied(cells) or ["cs"]
    table = Table()
    for axis in axes:
        table.add_column(AXES[axis], overflow="fold")
    for key in columns:
        table.add_column(SHOWN[key], justify="right", overflow="fold")
    best = min((cell["makespan_s"] for cell in cells if cell["makespan_s"] is not None), default=None)
    for cell in cells:
        figures = ["–" if cell[key] is None else show[key](cell[key]) for key in columns]
        style = "bold" if cell["makespan_s"] == best else None
        table.add_row(*(value_text(cell[axis]) for axis in axes), *figures, style=style)
    return table
