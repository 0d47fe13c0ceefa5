"""The waiting queue of one worker and the order in which it is tried.

After SGLang 0.5.23's `SchedulePolicy.calc_priority`: the queue is a list that keeps its order from pass to pass, new
and retracted requests are appended, and a pass sorts it in place, or not. The admission walk goes from the front and
any refusal ends it, so order decides everything.
- fcfs: no sort; every 32nd pass marks the use of what the first 128 have cached.
- lpm: longest cached prefix first. Of several requests that have next to nothing cached and share a prefix, all but
  the first go last, so that they can reuse what it computes. Above 128 waiting it is fcfs: no sort, no match.
- dfs-weight: see `weights`.
- routing-prefix: see `agentbatch.policy.routing_prefix`, the same code that SGLang is to run.
Matching marks use, whoever asks.
"""

from __future__ import annotations

from agentbatch.policy.routing_prefix import RoutingPrefix, RoutingPrefixStatistics
from agentbatch.sim.batch import Entry
from agentbatch.sim.cache import PrefixCache
from agentbatch.sim.weights import sort_by_weight

MATCH_MAX = 128
"""Most waiting requests that lpm matches, and whose prefixes fcfs keeps fresh (WAITING_QUEUE_PREFIX_MATCH_MAX)."""
REFRESH_PASSES = 32
"""Passes between two refreshes (WAITING_PREFIX_REFRESH_INTERVAL)."""
SHARED_TOKENS = 32
"""A hit up to this counts as next to nothing, a shared prefix of this as shared (IN_BATCH_PREFIX_CACHING_*)."""


class WaitingQueue:
    """Requests that wait for admission.

    Args:
        policy: one of `POLICIES`.
        cache: asked for matches.
        label_capacity: C_A of routing-prefix, >= 1.
    """

    def __init__(self, policy: str, cache: PrefixCache, label_capacity: int) -> None:
        self.entries: list[Entry] = []
        self.passes = 0
        self.matches = 0
        self._policy = policy
        self._cache = cache
        self._refreshes = 0
        self._prefixes = RoutingPrefix[Entry](
            label_capacity, rid=_rid, label=_label, lookup=self._hit_tokens, retracted=_retracted
        )

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, entry: Entry) -> None:
        """Append `entry`."""
        self.entries.append(entry)

    def withdraw(self, entry: Entry) -> None:
        """Take `entry` out: aborted."""
        self.entries.remove(entry)
        self._cache.matcher.drop(entry.sought)

    def admitted(self, count: int) -> None:
        """Take the first `count` out: admitted."""
        for entry in self.entries[:count]:
            self._cache.matcher.drop(entry.sought)
            if self._policy == "routing-prefix":
                self._prefixes.admitted(entry)
        del self.entries[:count]

    def prioritise(self) -> None:
        """Bring the queue into the order in which the walk tries it: one pass."""
        self.passes += 1
        queue = self.entries
        if self._policy == "routing-prefix":
            self._prefixes.order(queue)
        elif self._policy == "dfs-weight":
            for entry in queue:
                self._hit_tokens(entry)
            sort_by_weight(queue, self._cache.tree)
        elif self._policy == "lpm" and len(queue) <= MATCH_MAX:
            self._sort_by_hit(queue)
        else:
            self._refresh(queue)

    def labels(self) -> RoutingPrefixStatistics:
        """Return the counts of routing-prefix; zeros under another policy."""
        return self._prefixes.statistics()

    def _hit_tokens(self, entry: Entry) -> int:
        self.matches += 1
        return self._cache.hit_tokens(entry.sought, entry.input_tokens)

    def _sort_by_hit(self, queue: list[Entry]) -> None:
        keys: dict[Entry, float] = {}
        begun: set[tuple[object, ...]] = set()
        for entry in queue:
            hit = self._hit_tokens(entry)
            keys[entry] = -hit
            if hit <= SHARED_TOKENS:
                opening = _opening(entry)
                if opening in begun:
                    keys[entry] = 1
                elif opening is not None:
                    begun.add(opening)
        queue.sort(key=keys.__getitem__)

    def _refresh(self, queue: list[Entry]) -> None:
        if queue and self._refreshes % REFRESH_PASSES == 0:
            for entry in reversed(queue[:MATCH_MAX]):  # the head last: it goes last when KV is short
                self._hit_tokens(entry)
        self._refreshes += bool(queue)


def _opening(entry: Entry) -> tuple[object, ...] | None:
    """Return the pieces that hold its first tokens, enough to count as shared; None when it is shorter."""
    tokens = 0
    sought = entry.sought
    for count in range(sought.count):
        tokens += sought.pieces[count][1]
        if tokens >= SHARED_TOKENS:
            return tuple(sought.pieces[: count + 1])
    return None


def _rid(entry: Entry) -> int:
    return entry.seq


def _label(entry: Entry) -> str | None:
    return entry.request.label


def _retracted(entry: Entry) -> bool:
    return entry.retracted
