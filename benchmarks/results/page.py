"""The page and its JSON: every table stands between two markers and is made from the records alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from benchmarks.results import mcp, ratios, routing, speed, swe
from benchmarks.results.ask import Record

SECTIONS = {"swe": swe, "mcp": mcp, "ratios": ratios, "routing": routing, "speed": speed}
BLOCK = re.compile(r"(<!-- table: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def blocks(records: dict[str, Sequence[Record]]) -> dict[str, str]:
    """Return every table by name, of the sections that have records."""
    made: dict[str, str] = {}
    for name, section in SECTIONS.items():
        if name in records:
            made |= section.render(records[name])
    return made


def filled(page: str, tables: dict[str, str]) -> str:
    """Return the page with its tables replaced.

    Raises:
        ValueError: the page has no place for a table, or two; or it has a place for one that is not there.
    """
    places = [match[2] for match in BLOCK.finditer(page)]
    if sorted(places) != sorted(tables):
        raise ValueError(f"the page has places for {sorted(places)}, and there are tables {sorted(tables)}")
    return BLOCK.sub(lambda match: f"{match[1]}\n{tables[match[2]]}\n\n{match[3]}", page)


def write(page: Path, tables: dict[str, str]) -> None:
    """Fill the page in place."""
    page.write_text(filled(page.read_text(encoding="utf-8"), tables), encoding="utf-8")
