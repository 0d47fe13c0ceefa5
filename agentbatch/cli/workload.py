"""`agentbatch workload`: batches like those of the paper, generated from a seed."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer


def workload(
    *,
    name: Annotated[str, typer.Argument(help="swe, bfcl, widesearch or mcp-atlas.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(help="Write the trajectories to this new trace file, for `agentbatch replay`.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of all draws; the totals do not depend on it.")] = 0,
    trajectories: Annotated[
        int | None,
        typer.Option(help="How many; by default as published. Means per trajectory stay the same."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on stdout instead of the table.")
    ] = False,
) -> None:
    """Generate a batch that matches what the paper publishes about one of its workloads.

    Trajectories, requests, output tokens and the balanced cache ratio are met exactly where they are published. How
    turns and tokens spread was measured on real traces, or is assumed. The table says which is which, field by field,
    and so does the first line of the file. Numbers only: nothing in it is text.

    **Try it:**

    agentbatch workload swe

    agentbatch workload mcp-atlas --trajectories 20 --out atlas.jsonl

    agentbatch replay atlas.jsonl --emulate 2 --cs 20 --ce 3
    """
    from agentbatch.report.console import say, stdout  # noqa: PLC0415 - see app.py: only what this command needs
    from agentbatch.report.workload import source_lines, workload_table  # noqa: PLC0415 - likewise
    from agentbatch.trace import write_workload  # noqa: PLC0415 - likewise
    from agentbatch.workloads import about, aggregate, generate, workload_spec  # noqa: PLC0415 - likewise

    spec = workload_spec(name)
    made = generate(name, seed=seed, trajectories=trajectories)
    if out is not None:
        write_workload(out, made, about(name, seed=seed, trajectories=trajectories))
    figures = aggregate(made)
    if as_json:
        sources = {field: asdict(source) for field, source in spec.sources.items()}
        typer.echo(json.dumps({"workload": name, "seed": seed, **asdict(figures), "sources": sources}))
        return
    console = stdout()
    if out is not None:
        say(console, f"{out}: {figures.trajectories:,} trajectories, {figures.requests:,} turns")
        return
    console.print(workload_table(spec, figures))
    say(console, *source_lines(spec))
