"""SWE-bench Multilingual on 2 and 4 workers: who takes a turn."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.results.ask import Ask, Record
from benchmarks.results.layout import chosen, distinct, interval, mean, minutes, paired, table, values
from benchmarks.results.swe import RATIO

ROUTINGS = ("lbch", "consistent-hash", "cache-aware", "random")


def asks(quick: bool) -> list[Ask]:
    """Return every simulation of these tables: 98 active a worker, and as many trajectories a worker at W 2 and 4."""
    return [
        Ask(table="routing", workload="swe", trajectories=2 * workers if quick else 289 * workers // 2,
            cs=(1 if quick else 98) * workers, workers=workers, ratio=RATIO, routing=routing, order=order)
        for workers in (2, 4)
        for routing in ROUTINGS
        for order in range(2 if quick else 3)
    ]  # fmt: skip


def render(records: Sequence[Record]) -> dict[str, str]:
    """Return the blocks of the page."""
    mine = chosen(records, table="routing")
    heads = ["workers", "routing", "minutes", "against lbch", "reuse", "β", "γ_out"]
    rows = []
    for workers in distinct(mine, "workers"):
        lbch = [one for one in chosen(mine, workers=workers) if "routing" not in one]
        for routing in ROUTINGS:
            ran = [one for one in chosen(mine, workers=workers) if one.get("routing", ROUTINGS[0]) == routing]
            against = "" if routing == ROUTINGS[0] else interval(paired(ran, lbch, "makespan_s"))
            figures = (mean(values(ran, name), ".3f") for name in ("cache_reuse", "beta", "gamma_out"))
            rows.append([str(workers), routing, minutes(ran), against, *figures])
    return {"routing": table(heads, rows, left=2)}
