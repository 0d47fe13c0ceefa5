"""What `agentbatch` exports, pinned."""

import agentbatch


def test_public_names() -> None:
    assert sorted(agentbatch.__all__) == [
        "AgentBatch", "AgentBatchError", "BatchClosed", "BatchDrained", "BatchStatistics", "ChildTrajectory",
        "Completed", "EnvironmentTimeout", "Failed", "LoopLag", "Result", "RetryPolicy", "SlotConflict",
        "StartUpError", "SyncAgentBatch", "SyncTrajectory", "SyncTrajectoryClient", "TimedOut", "Timing",
        "TraceError", "Trajectory", "TrajectoryCancelled", "TrajectoryClient", "TrajectoryClosed",
        "TrajectoryTimeout", "TurnTimeout", "Usage", "UsageError", "WrongThread", "__version__", "act", "act_sync",
        "current_trajectory", "environment", "environment_sync",
    ]  # fmt: skip
    assert set(agentbatch.__all__) <= set(dir(agentbatch))
    for name in agentbatch.__all__:
        assert getattr(agentbatch, name) is not None
