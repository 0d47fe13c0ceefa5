"""Seeded draws: log-normal weights, and whole numbers that add up to a total exactly.

Lives here: arithmetic on `random.Random`. Must not: what a workload is, or any figure of one. Only the standard
library is used, so that a seed means the same on every Python this package runs on.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

CUT = 2.326
"""Standard normals are cut here, their 1st and 99th percentile: one freak weight would starve all others."""


def weights(rng: random.Random, groups: Sequence[int], *, between: float, within: float) -> list[float]:
    """Draw a log-normal weight for each member of each group, median 1.

    Args:
        rng: advanced by one draw a group and one a member.
        groups: sizes of the groups, >= 0 each.
        between: sigma that the members of one group share, >= 0.
        within: sigma of each member, >= 0.

    Returns:
        One weight > 0 a member, group after group.
    """
    drawn = []
    for size in groups:
        shared = between * _normal(rng)
        drawn += [math.exp(shared + within * _normal(rng)) for _ in range(size)]
    return drawn


def apportion(total: int, shares: Sequence[float], *, least: int = 1) -> list[int]:
    """Divide `total` into whole parts: `least` each, and the rest in proportion (largest remainders).

    Args:
        total: >= least · len(shares).
        shares: weights > 0, at least one.
        least: smallest part, >= 0.

    Returns:
        Parts in the order of `shares`; their sum is `total`.
    """
    rest = total - least * len(shares)
    scale = rest / math.fsum(shares)
    quotas = [share * scale for share in shares]
    parts = [math.floor(quota) for quota in quotas]
    by_remainder = sorted(range(len(parts)), key=lambda place: parts[place] - quotas[place])  # stable: ties by place
    for place in by_remainder[: rest - sum(parts)]:
        parts[place] += 1
    return [least + part for part in parts]


def _normal(rng: random.Random) -> float:
    return max(-CUT, min(CUT, rng.gauss(0.0, 1.0)))
