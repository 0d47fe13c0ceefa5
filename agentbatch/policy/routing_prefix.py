"""RP: which waiting request a worker tries next, by routing label and recorded prefix hit (spec §5, Alg. 2).

Lives here: the set A of recently admitted labels, what is known of each waiting request, the order. Must not live
here: the prefix cache (a lookup is a callback), admission itself, clocks, `hash()`: tensor-parallel ranks sort each
for themselves and must agree, so the order follows from the sequence of calls and the lookups' results alone.

Rules:
- A holds the labels of the last C_A distinct labels admitted. Only admission moves it; cache eviction does not.
- A request whose label is in A is looked up once, then keyed (0, -hit, t); any other is not looked up and keyed
  (1, 0, t). Stale hits are accepted by design.
- t is a sequence number given when a request is first seen waiting. One that was retracted is new again: new t, and
  another lookup (our extension), counted apart.
- A request without a label (None or empty) is never in A and shares nothing with others of its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


def label_capacity(running: int) -> int:
    """Return C_A for a worker where `running` >= 1 requests may run at once: half as many labels again.

    As published C_A is floor(C(r̂; D)), `running` itself. But the turns of a batch differ in length: while a long one
    decodes, others come back, strangers get their places in between, and with no slack the long one's label is pushed
    out of A. Its next turn then waits behind all strangers, and its place goes to one of them, who pushes out the next:
    in the model twice the makespan where a fifth more labels would do (docs/design.md).
    """
    return running + running // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingPrefixStatistics:
    """Counts since the start, and how many labels A holds now."""

    capacity: int
    labels: int
    passes: int
    """Calls of `order`."""
    sorts: int
    """Those that had to sort: queue or A had changed."""
    lookups: int
    """Prefix-cache lookups, `relookups` included."""
    relookups: int
    """Lookups of requests that had been retracted."""
    avoided: int
    """Lookups that a policy which matches every waiting request in every pass would have made besides."""


class _Record:
    __slots__ = ("hit_tokens", "seq", "unknown")

    def __init__(self, seq: int) -> None:
        self.seq = seq
        self.hit_tokens = 0
        self.unknown = True


class RoutingPrefix(Generic[T]):
    """Orders the waiting queue of one worker.

    Args:
        capacity: C_A, most labels in A, an integer >= 1; see `label_capacity`.
        rid: names a request, unique among the waiting ones.
        label: its label κ; None or "" for none.
        lookup: its prefix hit in tokens, >= 0, asked of the cache now.
        retracted: tells whether a request seen waiting for the first time had been admitted and retracted before.

    Raises:
        ValueError: `capacity` is not an integer >= 1. Without A nothing is ever looked up: use fcfs for that.
    """

    def __init__(
        self,
        capacity: int,
        *,
        rid: Callable[[T], Hashable],
        label: Callable[[T], str | None],
        lookup: Callable[[T], int],
        retracted: Callable[[T], bool] = lambda request: False,
    ) -> None:
        if not isinstance(capacity, int) or isinstance(capacity, bool) or capacity < 1:
            raise ValueError(f"label capacity must be an int >= 1, not {capacity!r}: give about as many labels as "
                             "trajectories fit in the cache, or use fcfs, which is what no labels come to")
        self._capacity = capacity
        self._rid, self._label, self._lookup, self._retracted = rid, label, lookup, retracted
        self._labels: dict[str, None] = {}  # A, oldest first
        self._records: dict[Hashable, _Record] = {}
        self._sorted: list[T] = []  # the queue as the last sort left it
        self._settled = False  # A has the members it had then
        self._entries = self._passes = self._sorts = self._lookups = self._relookups = self._avoided = 0

    def order(self, queue: list[T]) -> bool:
        """Sort `queue` in place, one scheduling pass; cheap when neither it nor A has changed since the last.

        Args:
            queue: every waiting request, new ones in order of arrival behind those seen before; anything missing
                from it was withdrawn.

        Returns:
            Whether it had to sort.
        """
        self._passes += 1
        if self._settled and queue == self._sorted:
            self._avoided += len(queue)
            return False
        before = self._lookups
        keys: dict[Hashable, tuple[int, int, int]] = {}
        records: dict[Hashable, _Record] = {}
        for request in queue:
            rid = self._rid(request)
            record = records[rid] = self._records.get(rid) or self._enter(rid)
            keys[rid] = self._key(request, record)
        self._records = records  # who is not in the queue any more is forgotten
        queue.sort(key=lambda request: keys[self._rid(request)])
        self._avoided += len(queue) - (self._lookups - before)
        self._sorts += 1
        self._sorted = list(queue)
        self._settled = True
        return True

    def admitted(self, request: T) -> None:
        """Move the label of a request that was really admitted to the recent end of A."""
        if self._records.pop(self._rid(request), None) is not None:
            self._settled = False  # retracted before the next pass it may stand where it stood, and must be new again
        label = self._label(request)
        if not label:
            return
        if label in self._labels:
            del self._labels[label]
        else:
            self._settled = False
        self._labels[label] = None
        if len(self._labels) > self._capacity:
            del self._labels[next(iter(self._labels))]

    @property
    def labels(self) -> tuple[str, ...]:
        """A, the label admitted longest ago first."""
        return tuple(self._labels)

    def statistics(self) -> RoutingPrefixStatistics:
        """Return the counts as they are now."""
        return RoutingPrefixStatistics(
            capacity=self._capacity, labels=len(self._labels), passes=self._passes, sorts=self._sorts,
            lookups=self._lookups, relookups=self._relookups, avoided=self._avoided,
        )

    def _enter(self, rid: Hashable) -> _Record:
        self._entries += 1
        return _Record(self._entries)

    def _key(self, request: T, record: _Record) -> tuple[int, int, int]:
        label = self._label(request)
        if not label or label not in self._labels:
            return (1, 0, record.seq)
        if record.unknown:
            record.unknown = False
            record.hit_tokens = self._lookup(request)
            self._lookups += 1
            self._relookups += self._retracted(request)
        return (0, -record.hit_tokens, record.seq)

    def __repr__(self) -> str:
        return f"<RoutingPrefix labels={len(self._labels)}/{self._capacity} waiting={len(self._records)}>"
