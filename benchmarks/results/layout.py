"""Markdown tables, means, ranges and intervals: what the sections of the page share."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.results.ask import Record

T95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 9: 2.262, 11: 2.201, 19: 2.093}
"""Student's t for a two-sided 95 % interval, by degrees of freedom."""


def chosen(records: Sequence[Record], **wanted: Any) -> list[Record]:
    """Return the records with these values; a value left out of a record is the default that `wanted` must not name."""
    return [one for one in records if all(one.get(name) == value for name, value in wanted.items())]


def values(records: Sequence[Record], name: str) -> list[float]:
    """Return one figure of each."""
    return [one[name] for one in records]


def minutes(records: Sequence[Record]) -> str:
    """Return mean makespan in minutes, and its range where there are several."""
    return spread([value / 60 for value in values(records, "makespan_s")], ".1f")


def spread(found: Sequence[float], form: str) -> str:
    """Return the mean, and lowest to highest in brackets."""
    if not found:
        return "–"
    mean = format(statistics.fmean(found), form)
    if len(found) == 1:
        return mean
    return f"{mean} ({min(found):{form}}–{max(found):{form}})"


def mean(found: Sequence[float | None], form: str) -> str:
    """Return the mean, or a dash where there is none."""
    known = [one for one in found if one is not None]
    return format(statistics.fmean(known), form) if known else "–"


def interval(found: Sequence[float], form: str = "+.1f", unit: str = " %") -> str:
    """Return mean ± half the 95 % interval of the mean (Student), or the one value."""
    if len(found) < 2:
        return "–" if not found else f"{found[0]:{form}}{unit}"
    half = T95[len(found) - 1] * statistics.stdev(found) / len(found) ** 0.5
    return f"{statistics.fmean(found):{form}} ± {half:.1f}{unit}"


def paired(new: Sequence[Record], old: Sequence[Record], name: str) -> list[float]:
    """Return the change of a figure in per cent, order by order; both hold the same orders."""
    before: Mapping[tuple[int, int], float] = {_key(one): one[name] for one in old}
    return [100 * (one[name] / before[_key(one)] - 1) for one in new]


def _key(record: Record) -> tuple[int, int]:
    return record.get("seed", 0), record.get("order", 0)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Return a Markdown table; the first `left` columns are text, the others figures."""
    rule = ["---"] * left + ["---:"] * (len(heads) - left)
    return "\n".join("| " + " | ".join(row) + " |" for row in (heads, rule, *rows))


def distinct(records: Sequence[Record], name: str) -> list[Any]:
    """Return the values of a parameter, each once, as they come."""
    return list(dict.fromkeys(one.get(name) for one in records))
