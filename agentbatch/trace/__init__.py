"""Traces and runs: what is replayed, what a batch records while it runs, and the figures taken from that."""

from agentbatch.trace.curve import CompletionCurve, completion_curve
from agentbatch.trace.profile import noisy, read_profile
from agentbatch.trace.recorder import Recorder, RecorderStatistics
from agentbatch.trace.run import RunFile, read_run
from agentbatch.trace.summary import NoticeCount, Summary, summarize
from agentbatch.trace.workload import TraceTrajectory, TraceTurn, cap, limit, read_workload, write_workload

__all__ = [
    "CompletionCurve",
    "NoticeCount",
    "Recorder",
    "RecorderStatistics",
    "RunFile",
    "Summary",
    "TraceTrajectory",
    "TraceTurn",
    "cap",
    "completion_curve",
    "limit",
    "noisy",
    "read_profile",
    "read_run",
    "read_workload",
    "summarize",
    "write_workload",
]
