"""`agentbatch replay`: recorded trajectories against a live server, or against emulated workers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from agentbatch.cli import shared
from agentbatch.cli.limits import parse_band, parse_limits
from agentbatch.cli.named import find_trace
from agentbatch.cli.shared import LIMITS, OUTPUT, WORKLOAD
from agentbatch.errors import UsageError
from agentbatch.policy.admission import Admission
from agentbatch.policy.caas import EnvironmentPolicy
from agentbatch.policy.lbch import ALPHA
from agentbatch.replay.options import ReplayOptions
from agentbatch.sim import DEFAULT_PRESET, POLICIES, PRESETS

AGAINST, EMULATED = "What to replay against", "Emulated workers (with --emulate)"


def replay(
    *,
    trace: Annotated[
        Path,
        typer.Argument(
            help="Recorded trajectories, one JSON object a line; or a run file, `sample`, or the name of a generated "
            "workload (`agentbatch workload --help`).",
            show_default=False,
        ),
    ],
    url: Annotated[
        list[str] | None,
        typer.Option(help="OpenAI base URL of the server; give it once per worker.", rich_help_panel=AGAINST),
    ] = None,
    emulate: Annotated[
        int | None,
        typer.Option(help="Start this many emulated workers for the replay instead.", rich_help_panel=AGAINST),
    ] = None,
    speedup: Annotated[
        float | None,
        typer.Option(
            help="Trace seconds per wall second; by default, with --emulate what this machine keeps up with, with "
            "--url that of the emulator that listens there, else 1.",
            rich_help_panel=AGAINST,
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model name to send; by default the server's first.", rich_help_panel=AGAINST)
    ] = None,
    flush: Annotated[
        bool,
        typer.Option("--flush/--no-flush", help="Empty the server's cache before each run.", rich_help_panel=AGAINST),
    ] = True,
    cs: Annotated[int, typer.Option(help="Trajectories active at once.", rich_help_panel=LIMITS)] = 50,
    ce: Annotated[
        str,
        typer.Option(
            help="Environment stages at once: N, or name=N,name=N by env_name; `default` takes the rest, "
            "`environment-start` the stage before the first turn.",
            rich_help_panel=LIMITS,
        ),
    ] = "3",
    unified: shared.Unified = False,
    env_policy: Annotated[
        EnvironmentPolicy,
        typer.Option(
            help="Order of waiting environment stages; beyond the paper: depth, deepest chain first, and slow-step, "
            "longest mean step first, which is experimental.",
            rich_help_panel=LIMITS,
        ),
    ] = "caas",
    band_s: shared.BandS = None,
    bucket_s: shared.BucketS = 1.0,
    admission: Annotated[
        Admission,
        typer.Option(help="Order of admission; longest-first goes by --profile.", rich_help_panel=LIMITS),
    ] = "fifo",
    profile: Annotated[
        Path | None,
        typer.Option(
            help="Record of an earlier run, or a trace: how long each trajectory takes, by its id.",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    profile_noise: shared.ProfileNoise = 0.0,
    routing: Annotated[
        Literal["lbch", "consistent-hash", "random"],
        typer.Option(
            help="Which worker takes a turn: the label's home unless overloaded, always its home, or any.",
            rich_help_panel=LIMITS,
        ),
    ] = "lbch",
    alpha: shared.Alpha = ALPHA,
    limit: shared.Limit = None,
    env_cap_s: shared.EnvCapS = 120.0,
    user_cap_s: shared.UserCapS = None,
    inference_only: Annotated[
        bool,
        typer.Option("--inference-only", help="Skip environment stages and people's waits.", rich_help_panel=WORKLOAD),
    ] = False,
    seed: Annotated[int, typer.Option(help="Of all text and of the submission orders.", rich_help_panel=WORKLOAD)] = 0,
    orders: Annotated[
        int,
        typer.Option(
            help="Replay in K submission orders, the file's own first: mean and range of every figure.",
            rich_help_panel=WORKLOAD,
        ),
    ] = 1,
    schedule_policy: Annotated[
        str | None,
        typer.Option(
            help=f"Order of each worker's waiting queue: {', '.join(POLICIES)}; fcfs by default.",
            rich_help_panel=EMULATED,
        ),
    ] = None,
    kv_tokens: Annotated[
        int | None, typer.Option(help="KV cache of each; by default the preset's.", rich_help_panel=EMULATED)
    ] = None,
    state_slots: Annotated[
        int | None,
        typer.Option(help="Recurrent-state slots of each; by default the preset's.", rich_help_panel=EMULATED),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help=f"Engine to model: {', '.join(PRESETS)}; the first by default. With --url it only adds inference to "
            "the lower bound.",
            rich_help_panel=EMULATED,
        ),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(
            help="Write the run's events to this new file, for `agentbatch summary`; further orders to FILE.1.jsonl, …",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    as_json: shared.AsJson = False,
) -> None:
    """Replay recorded trajectories and report how long the batch took, and why.

    Prompts hold the replies generated in this very replay, and answers as long as the recorded ones. No tool is run: an
    environment stage holds its slot for the recorded time. All figures are trace seconds, except wall_s.

    **Try it:**

    agentbatch replay examples/traces/sample.jsonl --emulate 2 --cs 50 --ce 3

    agentbatch replay examples/traces/sample.jsonl --emulate 2 --unified --env-policy fcfs

    agentbatch replay sample --emulate 2 --env-policy depth --admission longest-first --profile sample

    agentbatch replay mine.jsonl --url http://gateway:30000/v1 --cs 50 --ce default=8,bash=2 --orders 3 --json
    """
    if (emulate is None) == (not url):
        raise UsageError("give either --url URL (once per worker) or --emulate N: one of them, and not both")
    for name, number in (("--emulate", emulate), ("--limit", limit), ("--orders", orders)):
        if number is not None and number < 1:
            raise UsageError(f"{name} takes a whole number of at least 1, not {number}")
    sizes = {"--schedule-policy": schedule_policy, "--kv-tokens": kv_tokens, "--state-slots": state_slots}
    if emulate is None and (given := [name for name, value in sizes.items() if value is not None]):
        raise UsageError(f"{', '.join(given)} shapes emulated workers: use it with --emulate, not with --url")

    from agentbatch.cli import replaying  # noqa: PLC0415 - the SDK and the runtime take a second to load

    options = ReplayOptions(
        base_urls=tuple(url or ()), cs=cs, ce=parse_limits(ce), env_policy=env_policy, unified=unified,
        band_s=parse_band(band_s), bucket_s=bucket_s, admission=admission, profile_noise=profile_noise,
        routing=routing, alpha=alpha, speedup=speedup, inference_only=inference_only, model=model,
        flush=flush, seed=seed,
        record=None if record is None else str(record), source=trace.name,
        preset=preset or (DEFAULT_PRESET if emulate else None),
    )  # fmt: skip
    emulated: dict[str, Any] | None = None
    if emulate:
        emulated = {"schedule_policy": schedule_policy or "fcfs", "kv_tokens": kv_tokens, "state_slots": state_slots}
        emulated |= {"workers": emulate, "preset": options.preset}
    replaying.carry_out(
        trace, options, profile=None if profile is None else find_trace(profile), emulated=emulated, limit_to=limit,
        env_cap_s=env_cap_s, user_cap_s=user_cap_s, orders=orders, as_json=as_json,
    )  # fmt: skip
