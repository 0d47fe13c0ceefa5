"""The commands of `agentbatch`, each in a file of its own."""

from __future__ import annotations

import typer

import agentbatch
from agentbatch.cli.demo import demo
from agentbatch.cli.emulate import emulate
from agentbatch.cli.plan import plan
from agentbatch.cli.replay import replay
from agentbatch.cli.simulate import simulate
from agentbatch.cli.summary import summary
from agentbatch.cli.workload import workload

app = typer.Typer(
    name="agentbatch",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.command()(demo)
app.command()(replay)
app.command()(emulate)
app.command()(simulate)
app.command()(summary)
app.command()(plan)
app.command()(workload)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"agentbatch {agentbatch.__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Finish batches of LLM agent tasks sooner: one limit for inference, another for tools, deepest chain first.

    Start with **agentbatch demo**: it needs no GPU, no key and no network.
    """
