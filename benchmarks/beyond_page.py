"""Writes the tables of `beyond` into docs/beyond.md, between markers; what they mean is written by hand."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent.parent / "docs" / "beyond.md"


def _ratio(figures: dict[str, Any]) -> str:
    mean, low, high = figures["ratio"]
    return "1" if mean == low == high == 1 else f"{mean:.3f} ({low:.3f}–{high:.3f})"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def ratios(cells: Sequence[dict[str, Any]]) -> str:
    """One row a way, one column a cell: makespan over FIFO + CAAS, mean and 95 % interval."""
    head = ["makespan / FIFO + CAAS", *(f"CE {one['ce']}, {one['varies']}" for one in cells)]
    return _table(head, [[way, *(_ratio(one["ways"][way]) for one in cells)] for way in cells[0]["ways"]])


def details(cell: dict[str, Any]) -> str:
    """One row a way: how near the bound, the tail, and who waited how long. Seconds, means over the batches."""
    head = [
        f"CE {cell['ce']}, {cell['varies']}", "/ lower bound", "L5", "slots, mean", "slots, worst", "one job, longest",
        "admission, mean",
    ]  # fmt: skip
    names = ("tail_5_s", "wait_mean_s", "wait_worst_s", "longest_s", "admission_s")
    rows = [
        [way, f"{one['bound']:.3f}", *(f"{one[name]:,}" for name in names)] for way, one in cell["ways"].items()
    ]
    return _table(head, rows)


def simulated(figures: dict[str, Any]) -> str:
    """All tables of the simulated part."""
    parts = [f"Traces: {' and '.join(figures['traces'])}; CS 50; {figures['batches']} batches a cell."]
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for cell in figures["cells"]:
        groups.setdefault((cell["workload"], cell["server"]), []).append(cell)
    for (workload, server), cells in groups.items():
        count = figures["trajectories"][workload]
        parts += [f"**{workload.capitalize()}** ({count} trajectories), {server}:", ratios(cells)]
        parts += [details(cell) for cell in cells if cell["varies"] == "orders" and cell["ce"] < 10]
    return "\n\n".join(parts)


def write_simulated(figures: dict[str, Any]) -> None:
    """Put the simulated tables into the page."""
    _write("simulated", simulated(figures))


def write_live(figures: dict[str, Any]) -> None:
    """Put the table of the live replays into the page."""
    lag = figures["loop_lag_mean_s"]
    about = (
        f"{figures['trajectories']} trajectories, {figures['turns']} turns, CS {figures['cs']}, {figures['batches']} "
        f"orders, speed-up {figures['speedup']:g}, {figures['replay_wall_s']:.1f} wall seconds a replay; loop late by "
        f"{1000 * lag:.1f} ms in the mean, {100 * figures['lag_share']:.1f} % of the makespan if every step is."
    )
    _write("live", f"{about}\n\n{ratios(figures['cells'])}")


def _write(name: str, text: str) -> None:
    page = PAGE.read_text()
    between = re.compile(rf"(<!-- {name}: begin[^>]*-->\n).*?(<!-- {name}: end -->)", re.DOTALL)
    assert len(between.findall(page)) == 1, f"{PAGE.name} lacks the markers of {name}"
    PAGE.write_text(between.sub(lambda found: f"{found[1]}\n{text}\n\n{found[2]}", page))
