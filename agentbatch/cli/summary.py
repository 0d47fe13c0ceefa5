"""`agentbatch summary`: every figure of a recorded run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def summary(
    *,
    run: Annotated[Path, typer.Argument(help="A run file, written with record= or --record.", show_default=False)],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on stdout instead of the table.")
    ] = False,
) -> None:
    """Sum up a recorded run: makespan and its lower bound, tail, cache reuse, waiting, balance.

    Works on a run that was killed or still runs, too: it says how many trajectories had not ended, and whether the last
    line was torn.

    **Try it:**

    agentbatch replay examples/traces/sample.jsonl --emulate 2 --limit 20 --record run.jsonl

    agentbatch summary run.jsonl
    """
    from agentbatch.report.console import say, stdout  # noqa: PLC0415 - see app.py: only what this command needs
    from agentbatch.report.table import binding_lines, figures_table, note_lines  # noqa: PLC0415 - likewise
    from agentbatch.trace.run import read_run  # noqa: PLC0415 - likewise
    from agentbatch.trace.summary import summarize  # noqa: PLC0415 - likewise

    figures = summarize(read_run(run)).to_dict()
    if as_json:
        typer.echo(json.dumps(figures))
        return
    console = stdout()
    console.print(figures_table({run.name: figures}))
    say(console, *binding_lines(figures), *note_lines(figures["notices"]))
