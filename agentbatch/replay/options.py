"""What a replay was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayOptions:
    """Options of one replay; seconds are trace seconds.

    Attributes:
        base_urls: the server's, or the workers', OpenAI base URLs.
        cs: admission limit. ce: environment limit per resource.
        speedup: trace seconds per wall second; must be the emulated server's own, 1 for a real one.
        preset: engine model to bound the makespan from below with; None where the engine is unknown.
        exact_lengths: ask for exactly the recorded number of output tokens (`ignore_eos`).
    """

    base_urls: tuple[str, ...]
    cs: int
    ce: Mapping[str, int] = field(default_factory=lambda: {"default": 1})
    env_policy: Literal["caas", "fcfs"] = "caas"
    unified: bool = False
    band_s: float = 30.0
    bucket_s: float = 1.0
    speedup: float = 1.0
    inference_only: bool = False
    model: str | None = None
    flush: bool = True
    seed: int = 0
    order: int = 0
    record: str | None = None
    preset: str | None = None
    source: str = ""
    api_key: str | None = None
