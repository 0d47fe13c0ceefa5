"""The modelled workers of one simulation: where each turn goes, and when something happens next.

Placing is decided by `policy.lbch`, or by the model in `cache_aware`; the counts are kept here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from random import Random

from agentbatch.policy.lbch import Ring, place
from agentbatch.sim.radix import Piece
from agentbatch.sim.records import Request, WorkerConfig, WorkerEvent, WorkerStatistics
from agentbatch.sim.worker import Worker
from agentbatch.simulate.cache_aware import CacheAware
from agentbatch.simulate.options import SimulatedRouting


class Fleet:
    """Workers of one configuration, and the requests in flight on each.

    Args:
        names: of the workers, at least one, all different.
        config: of each.
        routing, alpha: how turns are placed.
        random: where "random" draws from.
    """

    def __init__(
        self, names: Sequence[str], config: WorkerConfig, *, routing: SimulatedRouting, alpha: float, random: Random
    ) -> None:
        self._workers = {name: Worker(config) for name in names}
        self._due_s = dict.fromkeys(names, math.inf)
        self._in_flight = dict.fromkeys(names, 0)
        self._names = list(names)
        self._ring = Ring(names)
        self._alpha = alpha
        self._random = random
        self._cache_aware = CacheAware()
        self._routing = routing

    def choose(self, label: str, prompt: Sequence[Piece], prompt_tokens: int) -> str:
        """Return the worker that takes the next turn of trajectory `label`."""
        if len(self._names) == 1:
            return self._names[0]
        if self._routing == "lbch":
            return place(self._ring, label, self._in_flight, self._alpha)
        if self._routing == "consistent-hash":
            return self._ring.home(label)
        if self._routing == "random":
            return self._random.choice(self._names)
        return self._cache_aware.choose(self._in_flight, prompt, prompt_tokens)

    def submit(self, name: str, request: Request, now_s: float, infer_s: float | None) -> None:
        """Send `request` to worker `name`, and count it there until `give_back`; what it took elsewhere is no matter.

        Raises:
            UsageError: it can never fit; it is not counted then.
        """
        worker = self._workers[name]
        worker.submit(request, now_s)
        self._in_flight[name] += 1
        self._due_s[name] = worker.next_event_s()

    def give_back(self, name: str) -> None:
        """Count one request on worker `name` as ended."""
        self._in_flight[name] -= 1

    def next_event_s(self) -> float:
        """Return when `advance` is due next; infinity when every worker is idle."""
        return min(self._due_s.values())

    def advance(self, now_s: float) -> list[WorkerEvent]:
        """Run every worker that is due to `now_s`; return what happened, worker by worker."""
        happened: list[WorkerEvent] = []
        for name, due_s in self._due_s.items():
            if due_s <= now_s:
                worker = self._workers[name]
                happened += worker.advance(now_s)
                self._due_s[name] = worker.next_event_s()
        return happened

    def statistics(self) -> Mapping[str, WorkerStatistics]:
        """Return what each worker did."""
        return {name: worker.statistics() for name, worker in self._workers.items()}
