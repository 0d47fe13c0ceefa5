"""The grant table with 100,000 pending jobs: microseconds per push and pop, against a bare heap and a sorted list."""

import bisect
import heapq
import random
import time

from agentbatch.policy.slots import SlotTable

PENDING = 100_000


def _keys(count: int) -> list[tuple[int, int, int, int]]:
    source = random.Random(0)
    return [(source.randrange(400), -source.randrange(60), source.randrange(40), entry) for entry in range(count)]


def _table(keys) -> float:
    table: SlotTable[int] = SlotTable(1)
    table.request(-1, (0, 0, 0, 0))
    began = time.perf_counter()
    for ticket, key in enumerate(keys):
        table.request(ticket, key)
    holder = -1
    for _ in keys:
        [holder] = table.leave(holder)
    return time.perf_counter() - began


def _heap(keys) -> float:
    heap: list = []
    began = time.perf_counter()
    for key in keys:
        heapq.heappush(heap, key)
    for _ in keys:
        heapq.heappop(heap)
    return time.perf_counter() - began


def _sorted_list(keys) -> float:
    waiting: list = []
    began = time.perf_counter()
    for key in keys:
        bisect.insort(waiting, key)
    for _ in keys:
        waiting.pop(0)
    return time.perf_counter() - began


def run(quick: bool = False) -> dict:
    """Return the medians' ratios over three rounds."""
    keys = _keys(PENDING // 10 if quick else PENDING)
    ways = {"SlotTable": _table, "bare heapq": _heap, "sorted list": _sorted_list}
    us = {name: 1e6 * sorted(way(keys) for _ in range(3))[1] / len(keys) for name, way in ways.items()}
    return {
        "pending": len(keys),
        "us_per_push_and_pop": {name: round(value, 2) for name, value in us.items()},
        "times_bare_heap": round(us["SlotTable"] / us["bare heapq"], 2),
        "goal": "SlotTable <= 10 us",
    }
