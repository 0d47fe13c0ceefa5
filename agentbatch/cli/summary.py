"""`agentbatch summary`: every figure of a recorded run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from agentbatch.report.console import stdout
from agentbatch.report.table import summary_table
from agentbatch.trace.run import read_run
from agentbatch.trace.summary import summarize


def summary(
    run: Annotated[Path, typer.Argument(help="A run file, written with record= or --record.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the table.")] = False,
) -> None:
    """Sum up a recorded run: makespan and its lower bound, tail, cache reuse, waiting, balance.

    Works on a run that was killed, too: it says how many trajectories had not ended, and whether the last line was torn.
    """
    file = read_run(run)
    figures = summarize(file)
    if as_json:
        typer.echo(json.dumps(figures.to_dict()))
    else:
        stdout().print(summary_table({run.name: figures}))
