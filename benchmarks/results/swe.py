"""SWE-bench Multilingual, inference only, on one worker: policies beside the paper's, the causes of differences."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.results.ask import Ask, Record
from benchmarks.results.layout import chosen, distinct, mean, minutes, spread, table, values

POLICIES = ("fcfs", "lpm", "dfs-weight", "routing-prefix")
PAPER = {
    "fcfs": {49: "150.8", 98: "131.9", 196: "747.4", 289: "> 780"},
    "lpm": {49: "150.0", 98: "134.0", 196: "129.9", 289: "505.0"},
    "dfs-weight": {49: "154.4", 98: "144.7", 196: "146.0", 289: "152.2"},
    "routing-prefix": {49: "150.0", 98: "134.3", 196: "127.9", 289: "128.2"},
}
"""Makespans in minutes, arXiv:2611.16661."""
RATIO = 0.0858
"""98 requests of 3 states at `CACHE_MEMORY_GB`."""
RATIO_OF_FIVE = 0.1517
"""98 requests of 5 states there."""
RATIO_OF_FOUR = 0.1178
"""98 requests of 4."""


def asks(quick: bool) -> list[Ask]:
    """Return every simulation of these tables."""
    sizes = (2, 3) if quick else (49, 98, 196, 289)
    small = 3 if quick else None
    main = [
        Ask(table="swe", workload="swe", seed=seed, trajectories=small, cs=cs, ratio=RATIO, schedule_policy=policy)
        for seed in range(1 if quick else 3)
        for cs in sizes
        for policy in POLICIES
    ]
    return [*main, *_modes(sizes, small), *_variants(sizes[-2:], small), *_pauses(sizes[1:], small)]


def _modes(sizes: Sequence[int], small: int | None) -> list[Ask]:
    return [
        Ask(table="modes", workload="swe", trajectories=small, cs=cs, ratio=ratio, mode=mode, schedule_policy=policy)
        for mode, ratio in (("extra_buffer", RATIO_OF_FIVE), ("extra_buffer_lazy", RATIO_OF_FOUR))
        for cs in sizes[1:]
        for policy in (POLICIES if mode == "extra_buffer" else ("fcfs", "routing-prefix"))
    ]


def _variants(sizes: Sequence[int], small: int | None) -> list[Ask]:
    common = {"table": "variants", "workload": "swe", "trajectories": small, "ratio": RATIO}
    return [
        Ask(**common, row=row, cs=cs, schedule_policy=policy, **variant["options"])
        for row, variant in VARIANTS.items()
        for cs in sizes
        for policy in POLICIES
        if policy in variant.get("policies", POLICIES)
    ]


def _pauses(sizes: Sequence[int], small: int | None) -> list[Ask]:
    return [
        Ask(table="pauses", workload="swe", trajectories=small, pause_s=PAUSE_S, cs=cs, ce=cs, ratio=RATIO,
            schedule_policy=policy)
        for cs in sizes
        for policy in POLICIES
    ]  # fmt: skip


PAUSE_S = 2.0
OURS, ENDS = ("routing-prefix",), ("fcfs", "routing-prefix")
VARIANTS: dict[str, dict[str, Any]] = {
    "all outputs of 236 tokens": {"options": {"equal_outputs": True}},
    "C_A 98, as published": {"options": {"label_capacity": 98}, "policies": OURS},
    "C_A 110": {"options": {"label_capacity": 110}, "policies": OURS},
    "C_A 289": {"options": {"label_capacity": 289}, "policies": OURS},
    "chunks of 2,048": {"options": {"chunk_tokens": 2048}, "policies": ENDS},
    "chunks of 16,384": {"options": {"chunk_tokens": 16384}, "policies": ENDS},
    "preset h200-tp4-kda-mla": {"options": {"preset": "h200-tp4-kda-mla"}},
}


def render(records: Sequence[Record]) -> dict[str, str]:
    """Return the blocks of the page."""
    return {
        "swe": _main(chosen(records, table="swe")),
        "swe-work": _work(chosen(records, table="swe")),
        "swe-must-reach": _must_reach(chosen(records, table="swe")),
        "swe-pauses": _pauses_table(records),
        "swe-modes": _modes_table(chosen(records, table="modes")),
        "swe-variants": _variants_table(records),
    }


def _of(records: Sequence[Record], policy: str, **wanted: object) -> list[Record]:
    return [one for one in chosen(records, **wanted) if one.get("schedule_policy", "routing-prefix") == policy]


def _main(records: Sequence[Record]) -> str:
    sizes = distinct(records, "cs")
    heads = ["policy", *(f"CS {cs}: model" if part else f"CS {cs}: paper" for cs in sizes for part in (1, 0))]
    rows = []
    for policy in POLICIES:
        row = [policy]
        for cs in sizes:
            row += [minutes(_of(records, policy, cs=cs)), PAPER[policy].get(cs, "–")]
        rows.append(row)
    return table(heads, rows)


def _work(records: Sequence[Record]) -> str:
    heads = ["CS", "policy", "reuse", "new prefill, M tokens", "evicted, M tokens", "evicted states",
             "passes", "matches", "matching, s", "process, s"]  # fmt: skip
    rows = []
    for cs in distinct(records, "cs"):
        for policy in POLICIES:
            mine = _of(records, policy, cs=cs)
            rows.append([
                str(cs), policy, mean(values(mine, "cache_reuse"), ".3f"),
                mean([one["new_prefill_tokens"] / 1e6 for one in mine], ",.1f"),
                mean([one["evicted_tokens"] / 1e6 for one in mine], ",.1f"),
                mean(values(mine, "evicted_states"), ",.0f"), mean(values(mine, "passes"), ",.0f"),
                mean(values(mine, "matches"), ",.0f"), mean(values(mine, "matching_s"), ",.1f"),
                spread(values(mine, "wall_s"), ".0f"),
            ])  # fmt: skip
    return table(heads, rows, left=2)


def _must_reach(records: Sequence[Record]) -> str:
    """Compare what the issue asks for, with means over the seeds."""
    sizes = distinct(records, "cs")
    found = {
        (policy, cs): statistics.fmean(values(_of(records, policy, cs=cs), "makespan_s"))
        for policy in POLICIES
        for cs in sizes
    }
    low, knee, over, most = sizes if len(sizes) == 4 else (*sizes, *sizes)
    rows = [[f"CS {over}: fcfs / routing-prefix", "> 3", f"{found['fcfs', over] / found['routing-prefix', over]:.2f}"]]
    for first, second, wanted in (
        ("fcfs", "lpm", "far above 1"), ("lpm", "dfs-weight", "> 1"), ("dfs-weight", "routing-prefix", "≥ 1"),
    ):  # fmt: skip
        rows.append([f"CS {most}: {first} / {second}", wanted, f"{found[first, most] / found[second, most]:.2f}"])
    for cs in (low, knee):
        three = [found[policy, cs] for policy in ("fcfs", "lpm", "routing-prefix")]
        apart = 100 * (max(three) / min(three) - 1)
        rows.append([f"CS {cs}: fcfs, lpm and routing-prefix apart by", "≤ 5 %", f"{apart:.1f} %"])
    return table(["ratio of makespans", "wanted", "model"], rows)


def _modes_table(records: Sequence[Record]) -> str:
    heads = ["mode", "policy", *(f"CS {cs}" for cs in distinct(records, "cs"))]
    rows = []
    for mode in distinct(records, "mode"):
        mine = chosen(records, mode=mode)
        for policy in POLICIES:
            if _of(mine, policy):
                rows.append([f"`{mode}`", policy, *(_cell(_of(mine, policy, cs=cs)) for cs in distinct(mine, "cs"))])
    return table(heads, rows, left=2)


def _variants_table(records: Sequence[Record]) -> str:
    variants = chosen(records, table="variants")
    base = [one for one in chosen(records, table="swe") if one.get("seed", 0) == 0]
    sizes = distinct(variants, "cs")
    heads = ["changed", *(f"CS {cs}: {policy}" for cs in sizes for policy in POLICIES)]
    rows = []
    for row in (None, *distinct(variants, "row")):
        mine = base if row is None else chosen(variants, row=row)
        rows.append([row or "nothing", *(_cell(_of(mine, policy, cs=cs)) for cs in sizes for policy in POLICIES)])
    return table(heads, rows)


def _pauses_table(records: Sequence[Record]) -> str:
    paused = chosen(records, table="pauses")
    base = [one for one in chosen(records, table="swe") if one.get("seed", 0) == 0]
    sizes = distinct(paused, "cs")
    rows = [
        [name, policy, *(_cell(_of(mine, policy, cs=cs)) for cs in sizes)]
        for name, mine in (("0 s", base), (f"{PAUSE_S:g} s", paused))
        for policy in POLICIES
    ]
    return table(["between turns", "policy", *(f"CS {cs}" for cs in sizes)], rows, left=2)


def _cell(records: Sequence[Record]) -> str:
    """Return minutes and, after a slash, the share reused."""
    return f"{minutes(records)} / {mean(values(records, 'cache_reuse'), '.2f')}" if records else "–"
