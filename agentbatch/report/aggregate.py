"""Mean and range of each figure over several runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentbatch.trace.metrics import mean


def aggregate(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the figures of one run as they are, or means over several.

    Several also get `range` (lowest and highest of each figure) and `orders` (each run's own figures, in turn). What is
    no number stands as it is where all runs agree, else as None; notices are merged, figures by name (shares of time)
    averaged, a missing one being 0.

    Args:
        runs: the figures of each run, as `Summary.to_dict()` gives them; at least one.
    """
    if len(runs) == 1:
        return dict(runs[0])
    figures: dict[str, Any] = {}
    spread: dict[str, list[float]] = {}
    for key in runs[0]:
        values = [run[key] for run in runs]
        numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
        if numbers:
            figures[key] = mean(numbers)
            spread[key] = [min(numbers), max(numbers)]
        elif key == "notices":
            figures[key] = merge_notices(values)
        elif maps := [value for value in values if isinstance(value, Mapping)]:
            names = dict.fromkeys(name for value in maps for name in value)
            figures[key] = {name: mean(value.get(name, 0.0) for value in maps) for name in names}
        else:
            figures[key] = values[0] if all(value == values[0] for value in values) else None
    return {**figures, "range": spread, "orders": [dict(run) for run in runs]}


def merge_notices(runs: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return every notice once, in the order of its first run, with its count over all runs."""
    counts: dict[tuple[str, str], int] = {}
    for notices in runs:
        for notice in notices:
            name = (notice["kind"], notice["message"])
            counts[name] = counts.get(name, 0) + notice["count"]
    return [{"kind": kind, "message": message, "count": count} for (kind, message), count in counts.items()]
