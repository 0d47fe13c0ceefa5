"""Options that several commands take, each with its one help text."""

from __future__ import annotations

from typing import Annotated

import typer

LIMITS, WORKLOAD, OUTPUT = "Limits and order", "Workload", "Output"
"""Panels of --help."""

Unified = Annotated[
    bool,
    typer.Option(
        "--unified", help="The baseline, one gate for both: CS = min(cs, smallest ce).", rich_help_panel=LIMITS
    ),
]
BandS = Annotated[
    str | None,
    typer.Option(
        help="Bands of asking time, seconds (Eq. 13), or auto: as wide as jobs wait, from 30 s up, with depth from "
        "300 s. By default 30 for caas and auto for depth.",
        rich_help_panel=LIMITS,
    ),
]
BucketS = Annotated[float, typer.Option(help="CAAS cost bucket dI, seconds (Eq. 15).", rich_help_panel=LIMITS)]
ProfileNoise = Annotated[
    float,
    typer.Option(
        help="Blur the profile: sigma of a log-normal factor on each entry, seeded by --seed and order.",
        rich_help_panel=LIMITS,
    ),
]
Alpha = Annotated[
    float, typer.Option(help="LBCH load bound, times an equal share (Eq. 9); at least 1.", rich_help_panel=LIMITS)
]
Limit = Annotated[int | None, typer.Option(help="Only its first N trajectories.", rich_help_panel=WORKLOAD)]
EnvCapS = Annotated[
    float,
    typer.Option(
        help="Longest environment stage; longer ones mostly waited for a person's approval.", rich_help_panel=WORKLOAD
    ),
]
UserCapS = Annotated[
    float | None,
    typer.Option(help="Longest wait for a person (user_s); by default as recorded.", rich_help_panel=WORKLOAD),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on stdout instead of the table.", rich_help_panel=OUTPUT)
]
