"""What a replay was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agentbatch.policy.admission import Admission
from agentbatch.policy.caas import Band, EnvironmentPolicy
from agentbatch.policy.lbch import ALPHA, Routing


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayOptions:
    """Options of one replay; seconds are trace seconds.

    Attributes:
        base_urls: the server's, or the workers', OpenAI base URLs.
        cs: admission limit. ce: environment limit per resource.
        unified: one gate for both: CS = min(cs, smallest ce).
        env_policy, band_s, bucket_s: order of environment jobs; see `AgentBatch`.
        admission: "fifo" or "longest-first", which takes a `profile`: seconds by trajectory id.
        profile_noise: sigma of the log-normal factor that blurs each entry, drawn anew for each order; see `noisy`.
        routing: how turns are placed among several `base_urls`; see `AgentBatch`. alpha: load bound of "lbch", >= 1.
        speedup: trace seconds per wall second, which must be the emulated server's own, and 1 for a real one; None
            takes it from the server.
        flush: empty the servers' caches before the run.
        seed: of all text and of the submission orders. order: number of the submission order, 0 is the file's own.
        record: path of a run file to write.
        preset: engine model to bound the makespan from below with; None where the engine is unknown.
        source: name of the workload, for people.
    """

    base_urls: tuple[str, ...]
    cs: int
    ce: Mapping[str, int] = field(default_factory=lambda: {"default": 1})
    env_policy: EnvironmentPolicy = "caas"
    unified: bool = False
    band_s: Band | None = None
    bucket_s: float = 1.0
    admission: Admission = "fifo"
    profile: Mapping[str, float] | None = None
    profile_noise: float = 0.0
    routing: Routing = "lbch"
    alpha: float = ALPHA
    speedup: float | None = None
    inference_only: bool = False
    model: str | None = None
    flush: bool = True
    seed: int = 0
    order: int = 0
    record: str | None = None
    preset: str | None = None
    source: str = ""
    api_key: str | None = field(default=None, repr=False)
