"""A grid of simulations: every combination of the values of its axes, in a fixed order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from agentbatch.policy.caas import Band
from agentbatch.policy.lbch import ALPHA
from agentbatch.replay.bound import RECORDED
from agentbatch.sim.presets import DEFAULT_PRESET, Preset, preset
from agentbatch.sim.records import WorkerConfig
from agentbatch.sim.states import StateMode
from agentbatch.simulate.options import SimulateOptions, worker_names

OF_WORKERS = (
    "cache_ratio", "schedule_policy", "routing", "alpha", "workers", "cache_memory_gb", "kv_tokens", "state_slots",
    "mode", "slots_per_request", "max_states_per_path", "max_running_requests", "chunked_prefill_tokens",
    "label_capacity",
)  # fmt: skip
"""Parameters that only modelled workers have."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One point of a grid."""

    parameters: Mapping[str, Any]
    """What was asked for, as JSON has it; `ce` is None without environment, a number where it is of `default` alone."""
    options: SimulateOptions


@dataclass(frozen=True, kw_only=True, slots=True)
class Grid:
    """Values to combine, several an axis, and what all combinations share.

    Attributes:
        cs, ce, cache_ratio, schedule_policy, routing, env_policy, admission: axes, each with at least one value. `ce`
            None simulates inference only; `cache_ratio` None is the preset's.
        workers: how many. preset: name of the deployment that each is; `RECORDED` has no workers, and what shapes them
            changes nothing.
        cache_memory_gb: cache memory per GPU rank, 10^9 bytes; None is the preset's.
        profile: for "longest-first", expected seconds by trajectory id. inference_profile: the same for `ce` None.
        slots_per_request, state_mode, max_states_per_path, max_running_requests, chunked_prefill_tokens,
            label_capacity: of every worker; see `WorkerConfig`.
        unified, band_s, bucket_s, alpha, seed, source: see `SimulateOptions`.
    """

    cs: Sequence[int]
    ce: Sequence[Mapping[str, int] | None]
    cache_ratio: Sequence[float | None] = (None,)
    schedule_policy: Sequence[str] = ("fcfs",)
    routing: Sequence[str] = ("lbch",)
    env_policy: Sequence[str] = ("caas",)
    admission: Sequence[str] = ("fifo",)
    workers: int = 1
    preset: str = DEFAULT_PRESET
    cache_memory_gb: float | None = None
    profile: Mapping[str, float] | None = None
    inference_profile: Mapping[str, float] | None = None
    unified: bool = False
    band_s: Band | None = None
    bucket_s: float = 1.0
    alpha: float = ALPHA
    slots_per_request: int = 3
    state_mode: StateMode = "no_buffer"
    max_states_per_path: int | None = 1
    max_running_requests: int = 1024
    chunked_prefill_tokens: int = 8192
    label_capacity: int | None = None
    seed: int = 0
    source: str = ""

    def cells(self) -> list[Cell]:
        """Return every combination; the last axis varies first.

        Raises:
            UsageError: one that cannot be.
        """
        axes = (
            self.cs, self.ce, self.cache_ratio, self.schedule_policy, self.routing, self.env_policy, self.admission,
        )  # fmt: skip
        return [self._cell(values) for values in product(*axes)]

    def _cell(self, values: tuple[Any, ...]) -> Cell:
        cs, ce, cache_ratio, schedule_policy, routing, env_policy, admission = values
        served: dict[str, Any] = {"engine": RECORDED}
        if self.preset != RECORDED:
            engine = self._engine(cache_ratio)
            served = {
                "engine": engine, "worker": self._worker(engine, schedule_policy), "routing": routing,
                "alpha": self.alpha, "workers": worker_names(self.workers),
            }  # fmt: skip
        options = SimulateOptions(
            cs=cs,
            ce={"default": cs} if ce is None else ce,  # none: no stage is simulated, so this limit binds nothing
            inference_only=ce is None,
            unified=self.unified,
            env_policy=env_policy,
            band_s=self.band_s,
            bucket_s=self.bucket_s,
            admission=admission,
            profile=(self.inference_profile if ce is None else self.profile) if admission == "longest-first" else None,
            seed=self.seed,
            source=self.source,
            **served,
        )
        return Cell(parameters=self._parameters(options, ce), options=options)

    def _engine(self, cache_ratio: float | None) -> Preset:
        engine = preset(self.preset)
        if cache_ratio is not None:
            engine = replace(engine, cache_ratio=cache_ratio)
        if self.cache_memory_gb is not None:
            engine = replace(engine, cache_bytes=self.cache_memory_gb * 1e9)
        return engine

    def _worker(self, engine: Preset, schedule_policy: str) -> WorkerConfig:
        return replace(
            engine.config(schedule_policy=schedule_policy),
            slots_per_request=self.slots_per_request,
            state_mode=self.state_mode,
            max_states_per_path=self.max_states_per_path,
            max_running_requests=self.max_running_requests,
            chunked_prefill_tokens=self.chunked_prefill_tokens,
            label_capacity=self.label_capacity,
        )

    def _parameters(self, options: SimulateOptions, ce: Mapping[str, int] | None) -> dict[str, Any]:
        return {
            "source": options.source,
            "cs": options.cs,
            "ce": ce["default"] if ce is not None and list(ce) == ["default"] else ce,
            "unified": options.unified,
            "env_policy": options.env_policy,
            "band_s": options.environment_order().band_in_force,
            "bucket_s": options.bucket_s,
            "admission": options.admission,
            "seed": options.seed,
            **_server(options),
        }


def _server(options: SimulateOptions) -> dict[str, Any]:
    """Return what served, as JSON has it: None each but the preset where no engine did."""
    engine, worker = options.engine, options.config
    if worker is None or not isinstance(engine, Preset):
        return {"preset": RECORDED, **dict.fromkeys(OF_WORKERS)}
    values = (
        engine.cache_ratio, worker.schedule_policy, options.routing, options.alpha, len(options.workers),
        engine.cache_bytes / 1e9, worker.kv_tokens, worker.state_slots, worker.state_mode, worker.slots_per_request,
        worker.max_states_per_path, worker.max_running_requests, worker.chunked_prefill_tokens, worker.labels,
    )  # fmt: skip
    return {"preset": engine.name, **dict(zip(OF_WORKERS, values, strict=True))}
