"""A plan as a table for people, 80 characters wide at most, and its command lines."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from agentbatch.report.table import Show


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _megabytes(value: float) -> str:
    return f"{value / 1e6:,.2f} MB"


def _ratio(value: float) -> str:
    return f"{value:.4g}"


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


ROWS: tuple[tuple[str, str, Show], ...] = (
    ("cs", "CS: trajectories active at once, all workers", _whole),
    ("ce", "CE: environment stages at once", _whole),
    ("r_hat", "cache ratio r̂, states to KV", _ratio),
    ("r_bal", "  balanced for the mean trajectory, r_bal", _ratio),
    ("capacity", "trajectories a worker holds, C", lambda value: f"{value:,.2f}"),
    ("label_capacity", "  labels that routing-prefix remembers", _whole),
    ("kv_tokens", "KV cache of a worker, tokens", _whole),
    ("state_slots", "state slots of a worker", _whole),
    ("l_kv_tokens", "tokens of a trajectory at its end, mean", _whole),
    ("longest_context_tokens", "longest context, tokens", _whole),
    ("contexts", "contexts of a trajectory, mean", lambda value: f"{value:.2f}"),
    ("c_kv_bytes", "bytes of KV per token and GPU", _whole),
    ("c_state_bytes", "a recurrent state per GPU", _megabytes),
    ("s_state", "state slots per request", _whole),
    ("ce_advised", "CE from which tools do not bound the batch", _whole),
    ("environment_share", "time that was environment", _percent),
    ("trajectories", "trajectories in the trace", _whole),
)


def plan_table(figures: Mapping[str, Any]) -> Table:
    """Lay out a plan's figures, as `agentbatch plan --json` gives them; None shows as a dash."""
    name = figures["architecture"]
    kinds = " + ".join(kind for kind in (figures["attention"], figures["linear_attention"]) if kind)
    table = Table(title=f"{name} ({kinds})" if kinds else name, title_justify="left", title_style="bold")
    table.add_column("")
    table.add_column("plan", justify="right")
    for key, label, show in ROWS:
        value = figures[key]
        table.add_row(label, "–" if value is None else show(value), style="bold" if key in ("cs", "ce") else None)
    for ratio, makespan_s in (figures["calibration"] or {}).get("tried", ()):
        table.add_row(f"  makespan simulated at ratio {_ratio(ratio)}, s", _whole(makespan_s))
    return table


def plan_commands(figures: Mapping[str, Any], *, workers: int) -> list[str]:
    """Return the command lines of a plan: one for each worker, and the gateway's where there are several."""
    lines = ["each worker:", _command("python -m sglang.launch_server --model-path MODEL", figures["sglang_args"])]
    if workers > 1:
        lines += ["the gateway:", _command("smg", figures["gateway_args"])]
    return lines


def _command(program: str, arguments: Sequence[str]) -> str:
    """Write a command with a flag and its values a line, so that it can be copied from any terminal."""
    lines = [program]
    for word in arguments:
        if word.startswith("--"):
            lines.append(f"    {word}")
        else:
            lines[-1] += f" {shlex.quote(word)}"
    return " \\\n".join(lines)
