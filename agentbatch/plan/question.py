"""What to plan for: a model as it is served, memory, workers."""

from __future__ import annotations

from dataclasses import dataclass

from agentbatch.errors import UsageError
from agentbatch.plan.modes import Mode, slots_per_request
from agentbatch.plan.sizes import Deployment, ModelSizes

GB = 1e9

MAX_WORKERS = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What to plan for.

    Raises:
        UsageError: a figure that cannot be.
    """

    sizes: ModelSizes
    deployment: Deployment
    memory_bytes: float
    """M: memory of one GPU for both cache pools."""
    workers: int
    mode: Mode
    overlap: bool = True
    ce: int | None = None
    """The user's own CE; None to take the trace's advice."""

    def __post_init__(self) -> None:
        if not 0 < self.memory_bytes < float("inf"):
            raise UsageError(f"cache memory must be a positive number of GB, not {self.memory_bytes / GB:g}")
        for name, number in (("workers", self.workers), ("ce", self.ce)):
            if number is not None and number < 1:
                raise UsageError(f"{name} must be at least 1, not {number}")
        if self.workers > MAX_WORKERS:
            raise UsageError(f"workers must be at most {MAX_WORKERS:,}, not {self.workers:,}: each has its URL")
        slots_per_request(self.mode, overlap=self.overlap)

    @property
    def slots_per_request(self) -> int:
        """S_state; 0 for a model without recurrent states."""
        return 0 if self.sizes.state_bytes is None else slots_per_request(self.mode, overlap=self.overlap)
