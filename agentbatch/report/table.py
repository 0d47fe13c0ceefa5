"""Tables of figures, a column a run, 80 characters wide at most."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.table import Table

Show = Callable[[Any], str]


def _number(digits: int = 0) -> Show:
    return lambda value: f"{value:,.{digits}f}"


def _seconds(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _limit(name: str) -> str:
    kind, _, resource = name.partition(":")
    return {"cs": "CS", "ce": f"CE {resource}", "trajectories": "no limit"}.get(kind, kind)


def _shares(shares: Mapping[str, float]) -> str:
    states = ("inference", "environment", "waiting", "harness")
    parts = [sum(share for name, share in shares.items() if name.partition(":")[0] == state) for state in states]
    return " ".join(f"{100 * part:.0f}" for part in parts)


ROWS: tuple[tuple[str, str, Show], ...] = (
    ("makespan_s", "makespan, s", _seconds),
    ("lower_bound_s", "lower bound, s", _seconds),
    ("tail_5_s", "tail L5, s", _seconds),
    ("tail_10_s", "tail L10, s", _seconds),
    ("completed", "completed", _number()),
    ("failed", "failed", _number()),
    ("cancelled", "cancelled", _number()),
    ("unfinished", "unfinished", _number()),
    ("turns", "turns", _number()),
    ("jobs", "environment jobs", _number()),
    ("retries", "retries", _number()),
    ("timeouts", "time-outs", _number()),
    ("timed_out_trajectories", "trajectories with one", _number()),
    ("overruns", "tools that ran on", _number()),
    ("cache_reuse", "cache reuse", _percent),
    ("input_tokens", "input tokens", _number()),
    ("cached_tokens", "cached tokens", _number()),
    ("new_prefill_tokens", "new-prefill tokens", _number()),
    ("output_tokens", "output tokens", _number()),
    ("output_tokens_per_s", "output tokens a second", _number(1)),
    ("mean_in_flight", "mean requests in flight", _number(1)),
    ("beta", "request imbalance β", _number(3)),
    ("gamma_out", "output imbalance γ", _number(3)),
    ("ttft_mean_s", "TTFT, s", _number(2)),
    ("tpot_mean_s", "TPOT, ms", lambda value: f"{1000 * value:.1f}"),
    ("bottleneck", "what binds", _limit),
    ("time_shares", "% turn, tool, wait, own", _shares),
    ("admission_wait_s", "wait for admission, s", _number(1)),
    ("environment_wait_s", "wait for environment, s", _number(1)),
    ("environment_share", "time that was environment", _percent),
    ("inference_in_environment", "turns in a held slot", _number()),
    ("loop_lag_worst_s", "loop late at worst, wall s", _number(2)),
    ("priority_s", "wall s computing priorities", _number(3)),
    ("wall_s", "wall time, s", _number(1)),
)

ONLY_WHERE_ANY = frozenset(
    {"cancelled", "unfinished", "retries", "timeouts", "timed_out_trajectories", "overruns",
     "inference_in_environment"}
)  # fmt: skip
"""Rows that are left out where every run has none."""

DEMO_ROWS = (
    "makespan_s", "tail_5_s", "tail_10_s", "cache_reuse", "new_prefill_tokens", "mean_in_flight", "environment_share",
    "lower_bound_s", "completed", "failed", "unfinished", "retries", "wall_s",
)  # fmt: skip


def figures_table(
    columns: Mapping[str, Mapping[str, Any]],
    *,
    rows: Sequence[str] | None = None,
    title: str | None = None,
    caption: str | None = None,
    compare: bool = False,
) -> Table:
    """Lay figures side by side.

    Args:
        columns: by heading, figures as `Summary.to_dict()` gives them; None and missing ones show as a dash.
        rows: keys to show, in this order; all by default.
        title: heading of the table.
        caption: what stands below it.
        compare: add a row that compares every makespan with the first.
    """
    table = Table(title=title, title_justify="left", title_style="bold", caption=caption, caption_justify="left")
    table.add_column("")
    for name in columns:
        table.add_column(name, justify="right", overflow="fold")
    known = {key: (label, show) for key, label, show in ROWS}
    for key in rows or tuple(known):
        label, show = known[key]
        values = [figures.get(key) for figures in columns.values()]
        if key in ONLY_WHERE_ANY and not any(values):
            continue
        table.add_row(label, *("–" if value is None else show(value) for value in values))
        if key == "makespan_s" and compare:
            table.add_row("  against the first", *_against_first(values), style="bold")
    return table


def _against_first(makespans: Sequence[float | None]) -> list[str]:
    first = makespans[0]
    cells = ["–"]
    for makespan in makespans[1:]:
        cells.append("–" if not first or makespan is None else f"{100 * (makespan / first - 1):+.1f} %")
    return cells


def spread_columns(figures: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the columns of several runs' figures, as `aggregate` gives them: mean, lowest and highest of each."""
    spread = figures["range"]
    low, high = ({key: pair[place] for key, pair in spread.items()} for place in (0, 1))
    return {"mean": figures, "lowest": low, "highest": high}


def binding_lines(figures: Mapping[str, Any]) -> list[str]:
    """Return the sentence that says what bound; none where it is not known, or runs differ."""
    sentence = figures.get("bottleneck_sentence")
    return [f"{sentence[0].upper()}{sentence[1:]}."] if sentence else []


def note_lines(notices: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each notice, with its count where it came more than once and does not say so itself."""
    return [
        f"note: {notice['message']}" + (f" ({notice['count']} times)" if _repeats(notice) else "") for notice in notices
    ]


def _repeats(notice: Mapping[str, Any]) -> bool:
    count = int(notice["count"])
    return count > 1 and not str(notice["message"]).startswith(f"{count} ")
