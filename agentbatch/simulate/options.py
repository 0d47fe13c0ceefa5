"""What a simulation was asked for, checked once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from agentbatch.errors import UsageError
from agentbatch.policy.admission import Admission, AdmissionOrder
from agentbatch.policy.caas import Band, EnvironmentOrder, EnvironmentPolicy
from agentbatch.policy.lbch import ALPHA
from agentbatch.replay.bound import RECORDED, Recorded
from agentbatch.sim.presets import DEFAULT_PRESET, Preset, preset
from agentbatch.sim.records import WorkerConfig

SimulatedRouting = Literal["lbch", "consistent-hash", "cache-aware", "random"]
"""Ways to place a turn among several workers; "cache-aware" is the rival that the paper measures against."""

ROUTINGS: tuple[str, ...] = get_args(SimulatedRouting)


def worker_names(count: int) -> tuple[str, ...]:
    """Return the names of `count` >= 1 modelled workers; a label's home depends on them, as it does on URLs."""
    return tuple(f"worker-{number}" for number in range(1, count + 1))


@dataclass(frozen=True, kw_only=True, slots=True)
class SimulateOptions:
    """Options of one simulation; seconds are trace seconds.

    Attributes:
        cs: admission limit, >= 1. ce: environment limit per resource, each >= 1.
        unified: one gate for both: CS = min(cs, smallest ce).
        env_policy, band_s, bucket_s: order of waiting environment stages; see `EnvironmentOrder`.
        admission: order of admission; see `AdmissionOrder`. profile: for "longest-first", expected seconds by id.
        workers: their names, all different; where a live run's workers have the same, labels have the same homes.
        routing: how turns are placed among several workers. alpha: load bound of "lbch", >= 1.
        engine: deployment that every worker is; its cost bounds the makespan from below. `RECORDED`: there are no
            workers, and each turn takes its recorded seconds however many are in flight.
        worker: configuration of every worker; by default the engine's own.
        inference_only: skip environment stages and people's waits.
        seed: of labels and submission orders. order: number of the submission order, 0 is the file's own.
        source: name of the workload, for people.

    Raises:
        UsageError: a value out of range; says what would do.
    """

    cs: int
    ce: Mapping[str, int] = field(default_factory=lambda: {"default": 1})
    unified: bool = False
    env_policy: EnvironmentPolicy = "caas"
    band_s: Band | None = None
    bucket_s: float = 1.0
    admission: Admission = "fifo"
    profile: Mapping[str, float] | None = None
    workers: tuple[str, ...] = ("worker-1",)
    routing: SimulatedRouting = "lbch"
    alpha: float = ALPHA
    engine: Preset | Recorded = field(default_factory=lambda: preset(DEFAULT_PRESET))
    worker: WorkerConfig | None = None
    inference_only: bool = False
    seed: int = 0
    order: int = 0
    source: str = ""

    def __post_init__(self) -> None:
        for name, limit in (("cs", self.cs), *((f"ce of {name!r}", limit) for name, limit in self.ce.items())):
            if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
                raise UsageError(f"{name} must be a whole number of at least 1, not {limit!r}")
        if not self.ce:
            raise UsageError("ce names no resource: give at least default=N")
        if self.routing not in ROUTINGS:
            raise UsageError(f"unknown routing {self.routing!r}; known: {', '.join(ROUTINGS)}")
        if not 1 <= self.alpha < math.inf:
            raise UsageError(f"alpha must be a number of at least 1, not {self.alpha!r}: below it none may be eligible")
        if not self.workers or len(set(self.workers)) != len(self.workers):
            raise UsageError(f"workers must be at least one name, all different, not {self.workers!r}")
        if self.engine == RECORDED and (len(self.workers) > 1 or self.worker is not None):
            raise UsageError("recorded seconds have no workers to shape: leave workers and worker out, or model some")
        if self.order < 0:
            raise UsageError(f"order must be 0 or more, not {self.order}")
        self.environment_order()
        self.admission_order()

    def environment_order(self) -> EnvironmentOrder:
        """Return the order of waiting environment stages.

        Raises:
            UsageError: an unknown policy, or a width that is not above 0.
        """
        try:
            return EnvironmentOrder(policy=self.env_policy, band_s=self.band_s, bucket_s=self.bucket_s)
        except ValueError as error:
            raise UsageError(str(error)) from error

    def admission_order(self) -> AdmissionOrder:
        """Return the order of admission.

        Raises:
            UsageError: an unknown order, or a profile that is missing, useless or out of range.
        """
        try:
            return AdmissionOrder(self.admission, self.profile)
        except ValueError as error:
            raise UsageError(str(error)) from error

    @property
    def slots(self) -> int:
        """Admission slots: `cs`, or what the unified gate leaves of it (Eq. 11)."""
        return min(self.cs, *self.ce.values()) if self.unified else self.cs

    @property
    def served_by(self) -> tuple[str, ...]:
        """The workers; none where turns take their recorded seconds."""
        return self.workers if isinstance(self.engine, Preset) else ()

    @property
    def config(self) -> WorkerConfig | None:
        """Configuration of every worker; None where there is none."""
        if self.worker is None and isinstance(self.engine, Preset):
            return self.engine.config()
        return self.worker
