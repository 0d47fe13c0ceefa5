"""A whole batch on virtual time: limits, routing and modelled workers, one run or a grid."""

from agentbatch.simulate.options import ROUTINGS, SimulateOptions, worker_names
from agentbatch.simulate.runner import SimulationResult, simulate

__all__ = ["ROUTINGS", "SimulateOptions", "SimulationResult", "simulate", "worker_names"]
