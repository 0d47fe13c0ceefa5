"""One model of an SGLang worker, for the simulator on virtual time and the emulator on scaled wall time."""

from agentbatch.sim.cost import StepCost
from agentbatch.sim.presets import DEFAULT_PRESET, PRESETS, Preset, preset
from agentbatch.sim.records import (
    Finished,
    FirstToken,
    Request,
    WorkerConfig,
    WorkerEvent,
    WorkerStatistics,
)
from agentbatch.sim.waiting import POLICIES
from agentbatch.sim.worker import Worker

__all__ = [
    "DEFAULT_PRESET",
    "POLICIES",
    "PRESETS",
    "Finished",
    "FirstToken",
    "Preset",
    "Request",
    "StepCost",
    "Worker",
    "WorkerConfig",
    "WorkerEvent",
    "WorkerStatistics",
    "preset",
]
