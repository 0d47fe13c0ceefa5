"""Keeps Python's cyclic garbage collector from walking every request in flight, over and over.

A model call keeps some hundreds of container objects alive until its reply; by default the youngest generation is
collected after 700 new ones. With thousands in flight almost all survive and are walked again: 18 % of the time at
2,000 in flight (benchmarks/overload). The threshold therefore grows with CS while a batch runs; nothing else changes.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

OBJECTS_PER_TRAJECTORY = 150
MOST = 300_000


@contextmanager
def relaxed_collector(cs: int) -> Iterator[None]:
    """Raise the youngest generation's threshold for a block; a collector that is off or laxer already is left alone."""
    before = gc.get_threshold()
    wanted = min(MOST, OBJECTS_PER_TRAJECTORY * cs)
    if not gc.isenabled() or before[0] == 0 or before[0] >= wanted:
        yield
        return
    ours = (wanted, *before[1:])
    gc.set_threshold(*ours)
    try:
        yield
    finally:
        if gc.get_threshold() == ours:  # else somebody else changed it meanwhile, and knows why
            gc.set_threshold(*before)
