"""Seeded workloads matched to published aggregates (spec §9), as traces."""

from agentbatch.workloads.aggregates import Aggregates, Distribution, aggregate
from agentbatch.workloads.catalog import WORKLOADS
from agentbatch.workloads.generate import about, generate, workload_spec
from agentbatch.workloads.spec import Source, Spread, Stages, WorkloadSpec

__all__ = [
    "WORKLOADS",
    "Aggregates",
    "Distribution",
    "Source",
    "Spread",
    "Stages",
    "WorkloadSpec",
    "about",
    "aggregate",
    "generate",
    "workload_spec",
]
