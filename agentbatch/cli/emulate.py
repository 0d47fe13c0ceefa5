"""`agentbatch emulate`: emulated SGLang workers on this machine, until Ctrl-C."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from agentbatch.emulator.command import run_until_stopped
from agentbatch.emulator.server import Emulator
from agentbatch.emulator.settings import Settings
from agentbatch.sim import DEFAULT_PRESET, POLICIES, PRESETS


def emulate(
    *,
    workers: Annotated[int, typer.Option(help="How many workers, each on its own port.")] = 2,
    base_port: Annotated[
        int, typer.Option(help="Port of the first worker, the others follow; 0 lets the system choose.")
    ] = 31100,
    speedup: Annotated[
        float, typer.Option(help="Trace seconds per wall second: at 60, a minute of model time takes a second.")
    ] = 60.0,
    schedule_policy: Annotated[
        str, typer.Option(help=f"Order of each worker's waiting queue: {', '.join(POLICIES)}.")
    ] = "fcfs",
    kv_tokens: Annotated[
        int | None, typer.Option(help="KV cache of each worker in tokens; by default the preset's.")
    ] = None,
    state_slots: Annotated[
        int | None, typer.Option(help="Recurrent-state slots of each worker; by default the preset's.")
    ] = None,
    preset: Annotated[
        str, typer.Option(help=f"Engine to model: {', '.join(PRESETS)}.")
    ] = DEFAULT_PRESET,
    script: Annotated[
        Path | None,
        typer.Option(help='JSONL of scripted replies: {"when": "part of the last message", "reply": {"text": ...}}.'),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; other machines can reach all but loopback: add --token.")
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(help="Bearer token asked of every call but /health.", envvar="AGENTBATCH_EMULATOR_TOKEN"),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help='Print one line {"urls": [...], ...} when ready, and nothing else.')
    ] = False,
) -> None:
    """Serve emulated SGLang workers over HTTP: the OpenAI API without a GPU.

    Each worker models one SGLang replica: waiting queue, chunked prefill, running batch, KV cache with
    prefix reuse and recurrent-state pool. Point any OpenAI client at the URLs; one token is one byte of
    UTF-8. A request that sets max_tokens and ignore_eos gets exactly that many tokens. Stop with Ctrl-C.

    Try it: curl http://127.0.0.1:31100/server_info
    """
    settings = Settings(
        workers=workers, base_port=base_port, speedup=speedup, preset=preset, schedule_policy=schedule_policy,
        kv_tokens=kv_tokens, state_slots=state_slots, host=host, token=token,
        script=None if script is None else str(script),
    )
    run_until_stopped(settings, lambda emulator: _announce(emulator, as_json=as_json))


def _announce(emulator: Emulator, *, as_json: bool) -> None:
    settings = emulator.settings
    if as_json:
        typer.echo(json.dumps({"urls": emulator.urls, "speedup": settings.speedup, "preset": settings.preset}))
        return
    config = settings.config()
    for url in emulator.urls:
        typer.echo(url)
    typer.echo(
        f"{settings.workers} x {settings.preset}, {settings.speedup:g} times real time, {config.schedule_policy}: "
        f"{config.kv_tokens:,} KV tokens, {config.state_slots:,} state slots, {config.max_running} running at most. "
        "Ctrl-C stops."
    )
