"""Tables of figures, a column a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rich.table import Table

from agentbatch.trace.summary import Summary


def _number(digits: int = 0, suffix: str = "") -> Callable[[float | None], str]:
    return lambda value: "–" if value is None else f"{value:,.{digits}f}{suffix}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


ROWS: tuple[tuple[str, str, Callable[[float | None], str]], ...] = (
    ("makespan_s", "makespan, s", _number()),
    ("lower_bound_s", "lower bound, s", _number()),
    ("tail_5_s", "tail L5, s", _number()),
    ("tail_10_s", "tail L10, s", _number()),
    ("completed", "completed", _number()),
    ("failed", "failed", _number()),
    ("cache_reuse", "cache reuse", _percent),
    ("input_tokens", "input tokens", _number()),
    ("new_prefill_tokens", "new-prefill tokens", _number()),
    ("output_tokens", "output tokens", _number()),
    ("mean_in_flight", "mean requests in flight", _number(1)),
    ("beta", "request imbalance β", _number(3)),
    ("gamma_out", "output imbalance γ", _number(3)),
    ("ttft_mean_s", "TTFT, s", _number(2)),
    ("tpot_mean_s", "TPOT, ms", lambda value: "–" if value is None else f"{1000 * value:.1f}"),
    ("admission_wait_s", "mean wait for admission, s", _number(1)),
    ("environment_wait_s", "mean wait for environment, s", _number(1)),
    ("environment_share", "time that was environment", _percent),
    ("wall_s", "wall time, s", _number(1)),
)

DEMO_ROWS = (
    "makespan_s", "tail_5_s", "tail_10_s", "cache_reuse", "new_prefill_tokens", "mean_in_flight", "environment_share",
    "lower_bound_s", "completed", "wall_s",
)  # fmt: skip


def summary_table(
    runs: Mapping[str, Summary], *, rows: tuple[str, ...] | None = None, title: str | None = None
) -> Table:
    """Lay `runs` side by side; with several, the first is what the others' makespan is compared with.

    Args:
        runs: summaries by column heading.
        rows: keys to show, in this order; all by default.
        title: heading of the table.
    """
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for name in runs:
        table.add_column(name, justify="right")
    known = {key: (label, show) for key, label, show in ROWS}
    for key in rows or tuple(known):
        label, show = known[key]
        table.add_row(label, *(show(getattr(run, key)) for run in runs.values()))
        if key == "makespan_s" and len(runs) > 1:
            table.add_row("  against the first", *_reductions(list(runs.values())), style="bold")
    return table


def _reductions(runs: list[Summary]) -> list[str]:
    first = runs[0].makespan_s
    cells = ["–"]
    for run in runs[1:]:
        cells.append("–" if not first or run.makespan_s is None else f"{100 * (run.makespan_s / first - 1):+.1f} %")
    return cells
