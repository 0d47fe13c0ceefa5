"""`agentbatch simulate`: recorded or generated trajectories on modelled workers, one run or a grid, in seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, get_args

import typer

from agentbatch.cli import shared
from agentbatch.cli.limits import parse_band
from agentbatch.cli.shared import LIMITS, OUTPUT, WORKLOAD
from agentbatch.cli.values import one_of, parse_limit_sets, positive, several, whole, whole_or_none
from agentbatch.errors import UsageError
from agentbatch.policy.admission import Admission
from agentbatch.policy.caas import EnvironmentPolicy
from agentbatch.policy.lbch import ALPHA
from agentbatch.sim import DEFAULT_PRESET, POLICIES, PRESETS

ENGINE = "Modelled workers"

SHAPING = (
    "workers", "cache_ratio", "cache_memory_gb", "schedule_policy", "routing", "alpha", "mode", "max_states_per_path",
    "max_running_requests", "chunked_prefill_tokens", "label_capacity",
)  # fmt: skip
"""Options that only modelled workers have."""

ELSEWHERE = frozenset(
    {"trace", "cs", "ce", "inference_only", "preset", "workers", "jobs", "heat_map", "record", "as_json"}
)
"""Options that a table's caption has in words, or that change no figure."""


def simulate(
    *,
    ctx: typer.Context,
    trace: Annotated[
        str,
        typer.Argument(
            metavar="TRACE.jsonl|NAME",
            help="Recorded trajectories, a run file, `sample`, or the name of a generated workload (`agentbatch "
            "workload --help`). A file of that name goes before the generated one.",
            show_default=False,
        ),
    ],
    cs: Annotated[
        str, typer.Option(help="Trajectories active at once: N, or several, N,N,…", rich_help_panel=LIMITS)
    ] = "50",
    ce: Annotated[
        list[str] | None,
        typer.Option(
            help="Environment stages at once: N, several N,N,…, or none to simulate inference only. Limits by "
            "env_name, name=N,name=N, are one value: give --ce again for more.",
            rich_help_panel=LIMITS,
            show_default="3",
        ),
    ] = None,
    unified: shared.Unified = False,
    env_policy: Annotated[
        str,
        typer.Option(
            help="Order of waiting environment stages: caas, fcfs; beyond the paper depth and, experimental, "
            "slow-step. Several with commas.",
            rich_help_panel=LIMITS,
        ),
    ] = "caas",
    band_s: shared.BandS = None,
    bucket_s: shared.BucketS = 1.0,
    admission: Annotated[
        str,
        typer.Option(
            help="Order of admission: fifo, or longest-first, which goes by --profile. Several with commas.",
            rich_help_panel=LIMITS,
        ),
    ] = "fifo",
    profile: Annotated[
        Path | None,
        typer.Option(
            help="For longest-first: record of an earlier run, or a trace or NAME; capped and scaled as the workload.",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    profile_noise: shared.ProfileNoise = 0.0,
    routing: Annotated[
        str,
        typer.Option(
            help="Which worker takes a turn: lbch, consistent-hash, cache-aware (the gateway's own, which the paper "
            "compares with), random. Several with commas.",
            rich_help_panel=LIMITS,
        ),
    ] = "lbch",
    alpha: shared.Alpha = ALPHA,
    limit: shared.Limit = None,
    env_cap_s: shared.EnvCapS = 120.0,
    env_scale: Annotated[
        float,
        typer.Option(help="Every environment stage times this, after the cap.", rich_help_panel=WORKLOAD),
    ] = 1.0,
    user_cap_s: shared.UserCapS = None,
    inference_only: Annotated[
        bool, typer.Option("--inference-only", help="The same as --ce none.", rich_help_panel=WORKLOAD)
    ] = False,
    seed: Annotated[
        int, typer.Option(help="Of a generated workload, labels and submission orders.", rich_help_panel=WORKLOAD)
    ] = 0,
    orders: Annotated[
        int,
        typer.Option(
            help="Simulate K submission orders, the file's own first: mean and range of every figure.",
            rich_help_panel=WORKLOAD,
        ),
    ] = 1,
    workers: Annotated[int, typer.Option(help="How many.", rich_help_panel=ENGINE)] = 1,
    preset: Annotated[
        str | None,
        typer.Option(
            help=f"Deployment that each is: {', '.join(PRESETS)}. Or recorded: no workers, every turn takes its "
            "recorded seconds however many are in flight. Default: recorded where every turn has infer_s, stages are "
            f"simulated and no option about workers or --routing is given; else {DEFAULT_PRESET}.",
            rich_help_panel=ENGINE,
        ),
    ] = None,
    cache_ratio: Annotated[
        str | None,
        typer.Option(
            help="State memory / KV memory (Eq. 1), several with commas; by default the preset's.",
            rich_help_panel=ENGINE,
        ),
    ] = None,
    cache_memory_gb: Annotated[
        float | None,
        typer.Option(help="Cache memory per GPU, 10^9 bytes; by default the preset's.", rich_help_panel=ENGINE),
    ] = None,
    schedule_policy: Annotated[
        str,
        typer.Option(
            help=f"Order of each worker's waiting queue: {', '.join(POLICIES)}. Several with commas.",
            rich_help_panel=ENGINE,
        ),
    ] = "fcfs",
    mode: Annotated[
        Literal["no_buffer", "extra_buffer", "extra_buffer_lazy"],
        typer.Option(
            help="SGLang's --mamba-radix-cache-strategy: where recurrent states are left, and that a running request "
            "counts for 3, 5 or 4 slots of them.",
            rich_help_panel=ENGINE,
        ),
    ] = "no_buffer",
    max_states_per_path: Annotated[
        str, typer.Option(help="As --mamba-max-states-per-path: N, or none.", rich_help_panel=ENGINE)
    ] = "1",
    max_running_requests: Annotated[
        int, typer.Option(help="Most requests running on each.", rich_help_panel=ENGINE)
    ] = 1024,
    chunked_prefill_tokens: Annotated[
        int, typer.Option(help="Prefill budget of one step.", rich_help_panel=ENGINE)
    ] = 8192,
    label_capacity: Annotated[
        int | None,
        typer.Option(
            help="Labels that routing-prefix knows (C_A); by default half as many again as requests may run.",
            rich_help_panel=ENGINE,
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Processes to use; by default every core.", rich_help_panel=OUTPUT)
    ] = None,
    heat_map: Annotated[
        Path | None,
        typer.Option(help="Draw the makespans of a grid to this PNG (needs the extra report).", rich_help_panel=OUTPUT),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(
            help="Write the events of a single simulation to this new file, for `agentbatch summary`; further orders "
            "to FILE.1.jsonl, …",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object a simulation, one a line.", rich_help_panel=OUTPUT),
    ] = False,
) -> None:
    """Simulate a batch: every combination of the values given.

    Limits, order and routing are the live runtime's own code; the workers are those that `agentbatch emulate` serves,
    or turns take their recorded seconds (--preset).
    All figures are trace seconds, except wall_s. Nothing is sent anywhere.

    **Try it:**

    agentbatch simulate sample --cs 12,25,50 --ce 3,5 --env-policy caas,fcfs --workers 2 --user-cap-s 120

    agentbatch simulate swe --cs 49,98,196 --ce none --schedule-policy fcfs,lpm --heat-map swe.png

    agentbatch simulate mine.jsonl --ce default=8,bash=2 --orders 5 --json
    """
    for name, number in (("--limit", limit), ("--orders", orders), ("--workers", workers), ("--jobs", jobs)):
        if number is not None and number < 1:
            raise UsageError(f"{name} takes a whole number of at least 1, not {number}")

    from agentbatch.cli import simulating  # noqa: PLC0415 - what a grid needs takes a moment to load
    from agentbatch.plan.modes import slots_per_request  # noqa: PLC0415 - likewise
    from agentbatch.simulate.grid import Grid  # noqa: PLC0415 - likewise
    from agentbatch.simulate.options import ROUTINGS  # noqa: PLC0415 - likewise

    sources = {name: ctx.get_parameter_source(name) for name in SHAPING}
    shaping = [f"--{name.replace('_', '-')}" for name, source in sources.items() if source and source.name != "DEFAULT"]
    simulating.carry_out(
        simulating.Asked(
            trace=trace, limit=limit, env_cap_s=env_cap_s, env_scale=env_scale, user_cap_s=user_cap_s, seed=seed,
            orders=orders, profile=profile, profile_noise=profile_noise, preset=preset, shaping=shaping,
            given=_given(ctx), jobs=jobs, heat_map=heat_map, record=record, as_json=as_json,
        ),
        Grid(
            cs=several("--cs", cs, whole),
            ce=[None] if inference_only else parse_limit_sets(ce or ["3"]),
            cache_ratio=[None] if cache_ratio is None else [*several("--cache-ratio", cache_ratio, positive)],
            schedule_policy=several("--schedule-policy", schedule_policy, one_of(POLICIES)),
            routing=several("--routing", routing, one_of(ROUTINGS)),
            env_policy=several("--env-policy", env_policy, one_of(get_args(EnvironmentPolicy))),
            admission=several("--admission", admission, one_of(get_args(Admission))),
            workers=workers, cache_memory_gb=cache_memory_gb, unified=unified,
            band_s=parse_band(band_s), bucket_s=bucket_s, alpha=alpha, state_mode=mode,
            slots_per_request=slots_per_request(mode),
            max_states_per_path=whole_or_none("--max-states-per-path", max_states_per_path),
            max_running_requests=max_running_requests, chunked_prefill_tokens=chunked_prefill_tokens,
            label_capacity=label_capacity, seed=seed,
        ),
    )  # fmt: skip


def _given(ctx: typer.Context) -> dict[str, str]:
    """Return the options that are not at their defaults, as a command line has them, by parameter."""
    given = {}
    for option in ctx.command.params:
        name, flag, value = str(option.name), option.opts[0], ctx.params.get(str(option.name))
        if name not in ELSEWHERE and value is not None and value != option.default:
            text = f"{value:g}" if isinstance(value, float) else value
            given[name] = flag if value is True else f"{flag} {text}"
    return given
