"""Makes the tables of docs/results.md, and docs/results.json that they are made from.

`--quick` simulates tiny workloads into a temporary folder, to see that it runs.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentbatch.report.grid import varied
from agentbatch.report.heat_map import draw_heat_map
from benchmarks.results import mcp, page, ratios, routing, speed, swe
from benchmarks.results.ask import Record, carry_out

DOCS = Path(__file__).parents[2] / "docs"
ASKED = {"swe": swe.asks, "mcp": mcp.asks, "ratios": ratios.asks, "routing": routing.asks}
"""Sections that are simulations and nothing else; `speed` is measured."""


def run(quick: bool = False, folder: Path | None = None, sections: Sequence[str] = tuple(page.SECTIONS)) -> dict:
    """Simulate, write the records, the tables and the picture, and say where.

    Args:
        quick: tiny workloads; figures that mean nothing.
        folder: where to; by default docs, or a new temporary one if `quick`. Its results.md is filled, else a copy of
            the page's.
        sections: those to make anew; others stay as results.json has them.
    """
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="agentbatch-results-")) if quick else DOCS
    at, json_at = folder / "results.md", folder / "results.json"
    if not at.exists():
        at.write_text((DOCS / "results.md").read_text(encoding="utf-8"), encoding="utf-8")
    records: dict[str, Any] = json.loads(json_at.read_text(encoding="utf-8")) if json_at.exists() else {}
    for name in sections:
        records[name] = _told_records(name, quick)
        json_at.write_text(as_json(records), encoding="utf-8")
    draw(folder / "swe.png", records["swe"])
    page.write(at, page.blocks(records))
    return {"page": str(at), "simulations": {name: len(found) for name, found in records.items()}}


def _told_records(name: str, quick: bool) -> list[dict[str, Any]]:
    def told(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    if name == "speed":
        return speed.measured(quick, told)
    return carry_out(ASKED[name](quick), told, jobs=1 if quick else None)


def as_json(records: dict[str, Sequence[Record]]) -> str:
    """Return a record a line, by section."""
    sections = (
        f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(one) for one in found) + "\n]"
        for name, found in records.items()
    )
    return "{\n" + ",\n".join(sections) + "\n}\n"


def draw(path: Path, records: Sequence[Record]) -> None:
    """Draw the makespans of the first seed, as `agentbatch simulate --heat-map` does."""
    same = {"ce": None, "cache_ratio": swe.RATIO, "routing": "lbch", "env_policy": "caas", "admission": "fifo"}
    cells = [
        {**same, "cs": one["cs"], "schedule_policy": one.get("schedule_policy", "routing-prefix"),
         "makespan_s": one["makespan_s"], "failed": one["failed"]}
        for one in records
        if one["table"] == "swe" and "seed" not in one
    ]  # fmt: skip
    draw_heat_map(path, cells, varied(cells))
