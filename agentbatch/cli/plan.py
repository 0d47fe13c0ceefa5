"""`agentbatch plan`: limits, cache ratio and command lines from a user's own traces."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from agentbatch.cli.shared import LIMITS, WORKLOAD, AsJson, EnvCapS
from agentbatch.errors import UsageError
from agentbatch.sim import PRESETS

MODEL, SERVER = "Model", "Server"


def plan(
    *,
    trace: Annotated[
        str,
        typer.Argument(
            metavar="TRACE.jsonl|NAME",
            help="A trace, the record of a run (record=, --record), `sample`, or the name of a generated workload.",
            show_default=False,
        ),
    ],
    model_config: Annotated[
        Path | None,
        typer.Option(help="The model's config.json, as published with its weights.", rich_help_panel=MODEL),
    ] = None,
    kv_bytes: Annotated[
        int | None,
        typer.Option(
            help="Bytes of KV cache per token and GPU, for a model that is not known; instead of --model-config.",
            rich_help_panel=MODEL,
        ),
    ] = None,
    state_bytes: Annotated[
        int | None,
        typer.Option(
            help="Bytes of a recurrent state per GPU, with --kv-bytes; 0 for a model without.", rich_help_panel=MODEL
        ),
    ] = None,
    tp: Annotated[int, typer.Option(help="GPUs per worker (tensor parallel).", rich_help_panel=SERVER)] = 1,
    cache_memory_gb: Annotated[
        float,
        typer.Option(
            help="Memory of one GPU for both cache pools, in GB of 10^9 bytes. SGLang's log counts 2^30: 65.2 there "
            "is 70 here.",
            rich_help_panel=SERVER,
            show_default=False,
        ),
    ],
    workers: Annotated[int, typer.Option(help="Replicas of the server.", rich_help_panel=SERVER)] = 1,
    mode: Annotated[
        Literal["no_buffer", "extra_buffer", "extra_buffer_lazy"],
        typer.Option(
            help="SGLang's --mamba-radix-cache-strategy: 3, 5 or 4 state slots a request.", rich_help_panel=SERVER
        ),
    ] = "extra_buffer",
    overlap: Annotated[
        bool,
        typer.Option(
            "--overlap/--no-overlap",
            help="SGLang's overlap schedule; without it extra_buffer takes 4 slots. no_buffer never has it.",
            rich_help_panel=SERVER,
        ),
    ] = True,
    kv_cache_dtype: Annotated[
        Literal["auto", "bfloat16", "fp8_e4m3", "fp8_e5m2"],
        typer.Option(help="SGLang's --kv-cache-dtype.", rich_help_panel=SERVER),
    ] = "auto",
    mamba_ssm_dtype: Annotated[
        Literal["float32", "bfloat16", "float16"] | None,
        typer.Option(
            help="SGLang's --mamba-ssm-dtype; by default as SGLang: the model's own, else float32.",
            rich_help_panel=SERVER,
        ),
    ] = None,
    ce: Annotated[
        int | None,
        typer.Option(help="Your own limit on environment stages; by default advised.", rich_help_panel=LIMITS),
    ] = None,
    env_cap_s: EnvCapS = 120.0,
    user_cap_s: Annotated[
        float,
        typer.Option(help="Longest wait for a person (user_s); a batch has none.", rich_help_panel=WORKLOAD),
    ] = 120.0,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate", help="Simulate the batch at cache ratios near r_bal; take the best.", rich_help_panel=LIMITS
        ),
    ] = False,
    preset: Annotated[
        str | None,
        typer.Option(
            help=f"Engine whose step times --calibrate takes: {', '.join(PRESETS)}; the first by default.",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Choose CS, CE and SGLang's cache ratio for batches like the ones you have recorded.

    From the trace come the lengths of contexts and the time of tools, from config.json what a token and a recurrent
    state take. The plan says how many trajectories fit into a worker's cache (CS), how to divide that cache, which CE
    keeps tools from holding the batch up, and the flags of SGLang and its gateway. It warns where SGLang's defaults
    would starve a pool.

    **Try it,** with a config.json of your model beside:

    agentbatch plan examples/traces/sample.jsonl --model-config config.json --tp 4 --cache-memory-gb 70 --workers 2

    agentbatch plan run.jsonl --model-config config.json --tp 4 --cache-memory-gb 70 --mode no_buffer --json

    agentbatch plan run.jsonl --kv-bytes 8064 --state-bytes 18995200 --tp 4 --cache-memory-gb 70
    """
    if preset is not None and not calibrate:
        raise UsageError("--preset is the engine of --calibrate: give both, or neither")

    from agentbatch.cli import planning  # noqa: PLC0415 - see app.py: only what this command needs

    planning.carry_out(
        trace,
        planning.Asked(
            model_config=model_config, kv_bytes=kv_bytes, state_bytes=state_bytes, tp=tp,
            cache_memory_gb=cache_memory_gb, workers=workers, mode=mode, overlap=overlap,
            kv_cache_dtype=kv_cache_dtype, mamba_ssm_dtype=mamba_ssm_dtype, ce=ce, env_cap_s=env_cap_s,
            user_cap_s=user_cap_s, calibrate=calibrate, preset=preset,
        ),
        as_json=as_json,
    )  # fmt: skip
