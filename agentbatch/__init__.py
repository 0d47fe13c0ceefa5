"""agentbatch: finish batches of LLM agent tasks sooner.

Nothing heavy is imported until used (PEP 562), so that SGLang's scheduler can import `agentbatch.policy` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentbatch.errors import (
        AgentBatchError,
        BatchClosed,
        BatchDrained,
        EnvironmentTimeout,
        SlotConflict,
        StartUpError,
        TimedOut,
        TraceError,
        TrajectoryCancelled,
        TrajectoryClosed,
        TrajectoryTimeout,
        TurnTimeout,
        UsageError,
        WrongThread,
    )
    from agentbatch.runtime.batch import AgentBatch
    from agentbatch.runtime.child import ChildTrajectory
    from agentbatch.runtime.client import TrajectoryClient
    from agentbatch.runtime.current import act, current_trajectory, environment
    from agentbatch.runtime.current_sync import act_sync, environment_sync
    from agentbatch.runtime.lag import LoopLag
    from agentbatch.runtime.results import Completed, Failed, Result, Timing, Usage
    from agentbatch.runtime.retry import RetryPolicy
    from agentbatch.runtime.statistics import BatchStatistics
    from agentbatch.runtime.sync_batch import SyncAgentBatch
    from agentbatch.runtime.sync_client import SyncTrajectoryClient
    from agentbatch.runtime.sync_trajectory import SyncTrajectory
    from agentbatch.runtime.trajectory import Trajectory

__version__ = "0.1.0"

_HOMES = {
    "agentbatch.errors": (
        "AgentBatchError", "BatchClosed", "BatchDrained", "EnvironmentTimeout", "SlotConflict", "StartUpError",
        "TimedOut", "TraceError", "TrajectoryCancelled", "TrajectoryClosed", "TrajectoryTimeout", "TurnTimeout",
        "UsageError", "WrongThread",
    ),
    "agentbatch.runtime.batch": ("AgentBatch",),
    "agentbatch.runtime.child": ("ChildTrajectory",),
    "agentbatch.runtime.client": ("TrajectoryClient",),
    "agentbatch.runtime.current": ("act", "current_trajectory", "environment"),
    "agentbatch.runtime.current_sync": ("act_sync", "environment_sync"),
    "agentbatch.runtime.lag": ("LoopLag",),
    "agentbatch.runtime.results": ("Completed", "Failed", "Result", "Timing", "Usage"),
    "agentbatch.runtime.retry": ("RetryPolicy",),
    "agentbatch.runtime.statistics": ("BatchStatistics",),
    "agentbatch.runtime.sync_batch": ("SyncAgentBatch",),
    "agentbatch.runtime.sync_client": ("SyncTrajectoryClient",),
    "agentbatch.runtime.sync_trajectory": ("SyncTrajectory",),
    "agentbatch.runtime.trajectory": ("Trajectory",),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AgentBatch", "AgentBatchError", "BatchClosed", "BatchDrained", "BatchStatistics", "ChildTrajectory", "Completed",
    "EnvironmentTimeout", "Failed", "LoopLag", "Result", "RetryPolicy", "SlotConflict", "StartUpError",
    "SyncAgentBatch", "SyncTrajectory", "SyncTrajectoryClient", "TimedOut", "Timing", "TraceError", "Trajectory",
    "TrajectoryCancelled", "TrajectoryClient", "TrajectoryClosed", "TrajectoryTimeout", "TurnTimeout", "Usage",
    "UsageError", "WrongThread", "__version__", "act", "act_sync", "current_trajectory", "environment",
    "environment_sync",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'agentbatch' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - only when something is used

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
