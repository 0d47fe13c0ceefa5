"""BFCL-v4 and WideSearch over cache ratios: does the balanced one win?"""

from __future__ import annotations

import math
from collections.abc import Sequence

from agentbatch.workloads import workload_spec
from agentbatch.workloads.footprint import CACHE_PER_REQUEST_STATES, capacity
from benchmarks.results.ask import Ask, Record
from benchmarks.results.layout import chosen, distinct, mean, minutes, table, values

POLICIES = ("fcfs", "routing-prefix")
DEFAULT = 0.9
"""SGLang's."""


def asks(quick: bool) -> list[Ask]:
    """Return every simulation of these tables; CS is C(r_bal) and twice that, at most the whole workload."""
    asked = []
    for name in ("widesearch", "bfcl"):
        spec = workload_spec(name)
        balanced = spec.r_bal
        held = capacity(balanced)
        for seed in range(1 if quick or name == "bfcl" else 2):
            for cs in (4, 8) if quick else (held, min(2 * held, spec.trajectories)):
                for ratio in (balanced / 2, balanced, 2 * balanced, DEFAULT):
                    asked += [
                        Ask(table="ratios", workload=name, seed=seed, trajectories=12 if quick else None, cs=cs,
                            ratio=ratio, schedule_policy=policy, max_running_requests=4096)
                        for policy in POLICIES
                    ]  # fmt: skip
    return asked


def render(records: Sequence[Record]) -> dict[str, str]:
    """Return the blocks of the page."""
    return {"ratios": _table(chosen(records, table="ratios"))}


def _kv_capacity(name: str, ratio: float) -> int:
    """Return C_kv (Eq. 3); F_kv is F_state / r_bal."""
    return math.floor(CACHE_PER_REQUEST_STATES * workload_spec(name).r_bal / (1 + ratio))


def _table(records: Sequence[Record]) -> str:
    heads = ["workload", "ratio", "C_state", "C_kv", "CS"]
    heads += [f"{policy}: {what}" for policy in POLICIES for what in ("minutes", "reuse")]
    rows = []
    for name in distinct(records, "workload"):
        for cs in distinct(chosen(records, workload=name), "cs"):
            for ratio in distinct(chosen(records, workload=name), "ratio"):
                mine = chosen(records, workload=name, cs=cs, ratio=ratio)
                found = [[one for one in mine if one.get("schedule_policy", POLICIES[1]) == each] for each in POLICIES]
                figures = [(minutes(each), mean(values(each, "cache_reuse"), ".3f")) for each in found]
                best = " (r_bal)" if ratio == workload_spec(name).r_bal else ""
                held = str(mine[0]["running_most"]), str(_kv_capacity(name, ratio))
                rows.append([name, f"{ratio:g}{best}", *held, str(cs), *sum(figures, ())])
    return table(heads, rows, left=2)
