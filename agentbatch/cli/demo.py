"""`agentbatch demo`: one batch of real agent trajectories, three ways."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

QUICK = 24
"""Trajectories of `--quick`."""


def demo(
    *,
    trace: Annotated[
        Path | None,
        typer.Option(help="Another trace than the sample that comes with agentbatch.", show_default=False),
    ] = None,
    speedup: Annotated[
        float | None, typer.Option(help="Trace seconds per wall second; by default what this machine keeps up with.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help=f"Only {QUICK} trajectories, for a first look.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on stdout, with the figures of each way.")
    ] = False,
) -> None:
    """Replay real agent trajectories on two emulated workers, three ways, and compare.

    (1) The unified gate that today's harnesses have. (2) Separate limits for inference and for tools. (3) The same with
    Chain-Advancing Action Scheduling. The last step depends on the batch and can be nil.

    Takes about two minutes; Ctrl-C shows what has finished by then.

    **Go on with:**

    agentbatch replay examples/traces/sample.jsonl --emulate 2 --cs 50 --ce 3 --user-cap-s 120 --orders 5
    """
    from agentbatch.cli import three_ways  # noqa: PLC0415 - the SDK and the runtime take a second to load

    three_ways.carry_out(trace, limit_to=QUICK if quick else None, speedup=speedup, as_json=as_json)
