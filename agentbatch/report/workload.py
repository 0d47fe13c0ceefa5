"""The table of a generated workload: its figures, and where each comes from."""

from __future__ import annotations

from rich.table import Table

from agentbatch.workloads import Aggregates, Distribution, WorkloadSpec
from agentbatch.workloads.footprint import INFERRED


def workload_table(spec: WorkloadSpec, figures: Aggregates) -> Table:
    """Lay out the figures of trajectories generated from `spec`: totals or means, percentiles, and their sources."""
    table = Table(title=spec.title, title_justify="left", title_style="bold")
    table.add_column("")
    table.add_column("value", justify="right")
    table.add_column("p50 p90 max", justify="right")
    table.add_column("source", overflow="fold")
    scaled = "" if figures.trajectories == spec.trajectories else ", scaled"
    table.add_row("trajectories", f"{figures.trajectories:,}", "", "as asked" if scaled else "published")
    for label, total, field in (
        ("inference requests", figures.requests, "requests"),
        ("output tokens", figures.output_tokens, "output tokens"),
    ):
        table.add_row(label, f"{total:,}", "", spec.sources[field].kind + scaled)
    for label, spread, field, digits in (
        ("turns a trajectory", figures.turns, "spread of turns", 1),
        ("output a turn, tokens", figures.output_tokens_per_turn, "spread of output", 0),
        ("first prompt, tokens", figures.first_prompt_tokens, "task", 0),
        ("last context, tokens", figures.last_context_tokens, "last context", 0),
    ):
        table.add_row(label, f"{spread.mean:,.{digits}f}", _percentiles(spread), spec.sources[field].kind)
    if figures.stage_s is not None:
        kind = spec.sources["environment"].kind
        table.add_row("stage, seconds", f"{figures.stage_s.mean:,.1f}", _percentiles(figures.stage_s, 1), kind)
        table.add_row("all stages, seconds", f"{figures.environment_s:,.0f}", "", kind)
    table.add_row("r_bal", f"{figures.r_bal:.4f}", "", f"published: {spec.r_bal:.2f}")
    reference = spec.reference_capacity
    said = "not published" if reference is None else f"published: {reference}"
    table.add_row("held by a worker (C)", f"{figures.capacity_per_worker:,}", "", said)
    return table


def source_lines(spec: WorkloadSpec) -> list[str]:
    """Return a line for each field, saying where it comes from, and one for the footprint behind r_bal."""
    lines = [f"{field}: {source.kind}, {source.text}" for field, source in spec.sources.items()]
    return [*lines, f"r_bal and C: {INFERRED}"]


def _percentiles(spread: Distribution, digits: int = 0) -> str:
    return " ".join(f"{value:,.{digits}f}" for value in (spread.p50, spread.p90, spread.max))
