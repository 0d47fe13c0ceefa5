"""MCP-Atlas with its environment: separate limits against the unified gate, and CAAS against FCFS."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmarks.results.ask import Ask, Record
from benchmarks.results.layout import chosen, distinct, interval, paired, spread, table, values

RATIO = 0.14
"""Published."""
CES = (3, 5)
SCALE_ORDERS = 3
"""Of other scales than 1, which is taken from the main table."""
BAND_ORDERS, BAND_SCALE, BANDS_S = 6, 2.0, (5.0, 30.0, 120.0, 480.0, 1e6)
"""The last band holds everything: the deepest chain goes first."""
COMPARED = (10, 50)
"""CS at which FCFS runs, too."""
UNIFIED, CAAS, FCFS = "unified", "caas", "fcfs"
PAPER_CAAS = {3: ("−1.9 %", "−19.0 %"), 5: ("−3.5 %", "−21.4 %")}
"""CAAS against FCFS, makespan and L5."""


def asks(quick: bool) -> list[Ask]:
    """Return every simulation of these tables."""
    small = 20 if quick else None
    main = [
        ask
        for order in range(2 if quick else 10)
        for ce in CES
        for ask in _ways("mcp", ce, (10, 50) if quick else (10, 20, 30, 40, 50), small, order)
    ]
    swept = [
        ask
        for scale in ((4.0,) if quick else (0.5, 2.0, 4.0, 8.0))
        for order in range(1 if quick else SCALE_ORDERS)
        for ce in CES
        for ask in _ways("mcp-scale", ce, (10, 50), small, order, scale)
    ]
    banded = [
        ask
        for order in range(2 if quick else BAND_ORDERS)
        for ce in CES
        for ask in _bands(ce, small, order)
    ]
    return [*main, *swept, *banded]


def _ways(name: str, ce: int, sizes: Sequence[int], small: int | None, order: int, scale: float = 1.0) -> list[Ask]:
    common = {
        "table": name, "workload": "mcp-atlas", "trajectories": small, "ce": ce, "ratio": RATIO, "order": order,
        "env_scale": scale,
    }  # fmt: skip
    unified = Ask(**common, row=UNIFIED, cs=ce, unified=True)
    apart = [
        Ask(**common, row=policy, cs=cs, env_policy=policy)
        for cs in sizes
        for policy in (FCFS, CAAS)
        if policy == CAAS or cs in COMPARED
    ]
    return [unified, *apart]


def _bands(ce: int, small: int | None, order: int) -> list[Ask]:
    common = {
        "table": "mcp-band", "workload": "mcp-atlas", "trajectories": small, "cs": COMPARED[-1], "ce": ce,
        "ratio": RATIO, "order": order, "env_scale": BAND_SCALE,
    }  # fmt: skip
    banded = [Ask(**common, row=CAAS, band_s=band_s) for band_s in BANDS_S]
    return [Ask(**common, row=FCFS, env_policy=FCFS), *banded]


def render(records: Sequence[Record]) -> dict[str, str]:
    """Return the blocks of the page."""
    main, swept = chosen(records, table="mcp"), chosen(records, table="mcp-scale")
    return {"mcp-limits": _limits(main), "mcp-caas": _caas(main), "mcp-scale": _scale([*main, *swept]),
            "mcp-band": _band(chosen(records, table="mcp-band"))}  # fmt: skip


def _limits(records: Sequence[Record]) -> str:
    rows = []
    for ce in CES:
        unified = chosen(records, ce=ce, row=UNIFIED)
        rows.append([str(ce), f"unified, CS {ce}", spread(values(unified, "makespan_s"), ",.0f"), "", ""])
        ten = chosen(records, ce=ce, row=CAAS, cs=10)
        for cs in [cs for cs in distinct(records, "cs") if cs not in CES]:
            mine = chosen(records, ce=ce, row=CAAS, cs=cs)
            rows.append([
                str(ce), f"CS {cs}, CAAS", spread(values(mine, "makespan_s"), ",.0f"),
                interval(paired(mine, unified, "makespan_s")), interval(paired(mine, ten, "makespan_s"))
                if cs != 10 else "",
            ])  # fmt: skip
    return table(["CE", "limits", "makespan, s", "against unified", "against CS 10"], rows, left=2)


def _caas(records: Sequence[Record]) -> str:
    rows = []
    for ce in CES:
        for cs in COMPARED:
            caas, fcfs = chosen(records, ce=ce, row=CAAS, cs=cs), chosen(records, ce=ce, row=FCFS, cs=cs)
            rows.append([
                str(ce), str(cs), *(interval(paired(caas, fcfs, name)) for name in ("makespan_s", "tail_5_s")),
                *(PAPER_CAAS[ce] if cs == 50 else ("", "")),
            ])  # fmt: skip
    return table(["CE", "CS", "makespan", "L5", "paper: makespan", "paper: L5"], rows, left=2)


def _band(records: Sequence[Record]) -> str:
    rows = []
    for band_s in BANDS_S:
        row = [f"{band_s:,.0f}"]
        for ce in CES:
            fcfs = chosen(records, ce=ce, row=FCFS)
            mine = [one for one in chosen(records, ce=ce, row=CAAS) if one.get("band_s", 30.0) == band_s]
            row += [interval(paired(mine, fcfs, name)) for name in ("makespan_s", "tail_5_s")]
        rows.append(row)
    return table(["band, s", *(f"CE {ce}: {what}" for ce in CES for what in ("makespan", "L5"))], rows)


def _scale(records: Sequence[Record]) -> str:
    heads = ["environment ×", "CE", "environment's share", "unified, s", "CS 10 against unified", "share − 1",
             "CS 50 against CS 10", "CAAS against FCFS at CS 50", "its L5"]  # fmt: skip
    rows = []
    for scale in sorted(distinct(records, "env_scale"), key=lambda scale: scale or 1.0):
        for ce in CES:
            mine = chosen(records, env_scale=scale, ce=ce)
            unified, ten = chosen(mine, row=UNIFIED), chosen(mine, row=CAAS, cs=10)
            fifty, fcfs = chosen(mine, row=CAAS, cs=50), chosen(mine, row=FCFS, cs=50)
            share = statistics.fmean(values(unified, "environment_share"))
            rows.append([
                f"{1.0 if scale is None else scale:g}", str(ce), f"{100 * share:.0f} %",
                spread(values(unified, "makespan_s"), ",.0f"), interval(paired(ten, unified, "makespan_s")),
                f"{100 * (share - 1):+.0f} %", interval(paired(fifty, ten, "makespan_s")),
                interval(paired(fifty, fcfs, "makespan_s")), interval(paired(fifty, fcfs, "tail_5_s")),
            ])  # fmt: skip
    return table(heads, rows, left=2)
