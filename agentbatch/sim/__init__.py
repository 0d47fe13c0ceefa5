"""One model of an SGLang worker, for the simulator on virtual time and the emulator on scaled wall time."""

from agentbatch.sim.cost import StepCost
from agentbatch.sim.presets import DEFAULT_PRESET, PRESETS, Preset, preset
from agentbatch.sim.records import (
    POLICIES,
    Finished,
    FirstToken,
    Request,
    WorkerConfig,
    WorkerEvent,
    WorkerStatistics,
)
from agentbatch.sim.states import StateMode
from agentbatch.sim.transcript import Prefix, Transcript
from agentbatch.sim.worker import Worker

__all__ = [
    "DEFAULT_PRESET",
    "POLICIES",
    "PRESETS",
    "Finished",
    "FirstToken",
    "Prefix",
    "Preset",
    "Request",
    "StateMode",
    "StepCost",
    "Transcript",
    "Worker",
    "WorkerConfig",
    "WorkerEvent",
    "WorkerStatistics",
    "preset",
]
