"""Mean and range of each figure over several runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentbatch.trace.metrics import mean
from agentbatch.trace.summary import Summary


def aggregate(runs: Sequence[Summary]) -> dict[str, Any]:
    """Return every figure of one run, or means over several with `range` (lowest, highest) and each run in `orders`."""
    rows = [run.to_dict() for run in runs]
    if len(rows) == 1:
        return rows[0]
    figures: dict[str, Any] = {}
    spread: dict[str, list[float]] = {}
    for key, first in rows[0].items():
        values = [row[key] for row in rows if isinstance(row[key], int | float) and not isinstance(row[key], bool)]
        if values:
            figures[key] = mean(values)
            spread[key] = [min(values), max(values)]
        else:
            figures[key] = first
    return {**figures, "range": spread, "orders": rows}
