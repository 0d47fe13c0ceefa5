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
    "env_policy": "policy",
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


def caption(parameters: Mapping[str, Any], axes: Sequence[str], given: Mapping[str, str]) -> str:
    """Say what all simulations of a table share: what served, limits that do not vary, options.

    Args:
        parameters: of any of them.
        axes: what varies.
        given: options that are not at their defaults, as a command line has them, by parameter.
    """
    served = f"{parameters['workers']} × {parameters['preset']}" if parameters["workers"] else "recorded seconds"
    limits = [f"{AXES[name]} {value_text(parameters[name])}" for name in ("cs", "ce") if name not in axes]
    return ", ".join([served, *limits, *(text for name, text in given.items() if name not in axes)])


def alike_line(sizes: Sequence[int], trajectories: int) -> list[str]:
    """Say which values of CS all admit the whole batch at once, so that their rows are alike; nothing for one value."""
    whole = [str(size) for size in sorted(sizes) if size >= trajectories]
    if len(whole) < 2:
        return []
    names = f"{', '.join(whole[:-1])} and {whole[-1]}"
    return [f"note: CS {names} all admit the {trajectories} trajectories at once: their rows are alike"]


def grid_table(cells: Sequence[Mapping[str, Any]], axes: Sequence[str], *, caption: str, width: int = 80) -> Table:
    """Lay cells out, one a row: what varies, then the figures that tell them apart.

    Args:
        cells: parameters and figures of each that is done, as JSON has them; at least one.
        axes: what varies over the whole grid; see `varied`.
        caption: what all of them share.
        width: characters a line; heads and options break at spaces, hyphens and commas where it is too few.
    """
    show: dict[str, Callable[[Any], str]] = {key: show for key, _, show in ROWS}
    columns = [key for key in SHOWN if key != "failed" or any(cell[key] for cell in cells)]
    heads = [*(AXES[axis] for axis in axes), *(SHOWN[key] for key in columns)]
    rows = [
        [*(value_text(cell[axis]) for axis in axes),
         *("–" if cell[key] is None else show[key](cell[key]) for key in columns)]
        for cell in cells
    ]  # fmt: skip
    if _width(heads, rows) > width:
        heads = [_broken(head) for head in heads]
    if _width(heads, rows) > width:
        rows = [[*map(_broken, row[: len(axes)]), *row[len(axes) :]] for row in rows]
    tight = _width(heads, rows) > width
    table = Table(caption=caption, caption_justify="left", padding=(0, 0 if tight else 1))
    for place, head in enumerate(heads):
        table.add_column(head, justify="left" if place < len(axes) else "right", overflow="fold")
    best = min((cell["makespan_s"] for cell in cells if _ended_well(cell)), default=None)
    for cell, row in zip(cells, rows, strict=True):
        table.add_row(*row, style="bold" if _ended_well(cell) and cell["makespan_s"] == best else None)
    return table


def _ended_well(cell: Mapping[str, Any]) -> bool:
    return cell["makespan_s"] is not None and not cell["failed"]


def _width(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Return the characters that a line of the table takes, with a space either side of each cell."""
    columns = zip(heads, *rows, strict=True)
    return 1 + sum(3 + max(len(line) for cell in column for line in cell.split("\n")) for column in columns)


def _broken(text: str) -> str:
    """Break between the words of a head, after the hyphens and commas of an option."""
    return text.replace(" ", "\n").replace("-", "-\n").replace(",", ",\n").replace(",\n\n", ",\n")
