"""LBCH: which worker takes a trajectory's next turn (spec §4, paper §3.2, Eq. 9 and Alg. 1).

A trajectory's label has a home on a hash ring, where its prefix is likely cached. A turn goes home unless
home is over its share of the load; then it goes to the next worker round the ring that is not, and the turn
after that tries home again. No prompt text and no guess about caches goes in.

Lives here: the ring and the walk. Must not live here: the counts (the caller's), health checks, a clock.
Positions come from a stable hash, never from `hash()`, so that every process places a label alike.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import repeat
from typing import Literal

ALPHA = 1.25
"""Default load bound of Eq. 9: a worker may carry a quarter more than its equal share."""

Routing = Literal["lbch", "consistent-hash", "random"]
"""Ways to place a turn: `place`; `Ring.home`; at random, which is the caller's to do."""


def blake2b_64(text: str) -> int:
    """Return 64 bits of BLAKE2b over the UTF-8 bytes of `text`: the same in every process, everywhere."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


class Ring:
    """A consistent hash ring of workers; it does not depend on the order in which they are given.

    Each worker stands at `vnodes` positions, those of "{worker}#0", "{worker}#1" and so on; a label stands at
    its own.

    Args:
        workers: names of the workers, at least one, all different.
        vnodes: positions per worker, >= 1; more make the shares more even and the ring bigger.
        hash: maps text to a position, any int; must give the same in every process that places labels.

    Raises:
        ValueError: no worker, one named twice, or `vnodes` below 1.
    """

    def __init__(
        self, workers: Sequence[str], *, vnodes: int = 150, hash: Callable[[str], int] = blake2b_64
    ) -> None:
        if isinstance(workers, str) or not workers:
            raise ValueError(f"workers must be one name or more in a list, not {workers!r}")
        if len(set(workers)) != len(workers):
            raise ValueError(f"a worker is named twice in {list(workers)!r}: give each once")
        if vnodes < 1:
            raise ValueError(f"vnodes must be 1 or more, not {vnodes!r}")
        self._workers = tuple(workers)
        self._known = frozenset(workers)
        self._hash = hash
        # Two workers at one position go by name, so that their order in `workers` changes nothing.
        points = sorted((hash(f"{worker}#{i}"), worker) for worker in workers for i in range(vnodes))
        self._positions = [position for position, _ in points]
        self._owners = [worker for _, worker in points]

    @property
    def workers(self) -> tuple[str, ...]:
        """The workers, as given."""
        return self._workers

    def walk(self, label: str) -> Iterator[str]:
        """Yield every worker once, clockwise from the position of `label`."""
        owners = self._owners
        start = bisect_left(self._positions, self._hash(label))
        seen: set[str] = set()
        for at in range(start, start + len(owners)):
            worker = owners[at % len(owners)]
            if worker not in seen:
                yield worker
                seen.add(worker)
                if len(seen) == len(self._workers):
                    return

    def home(self, label: str, live: Collection[str] | None = None) -> str:
        """Return h(label): the first live worker clockwise from the position of `label`.

        Args:
            label: the trajectory's label, compared as a whole.
            live: workers that answer; all when None. Names that are not on the ring are ignored.

        Raises:
            ValueError: no worker of the ring is live.
        """
        for worker in self.walk(label):
            if live is None or worker in live:
                return worker
        raise _none_live(self)

    def live(self, live: Collection[str] | None) -> Collection[str]:
        """Return the ring's workers that are in `live`; all when it is None. A set that fits is not copied."""
        if live is None:
            return self._workers
        if isinstance(live, (frozenset, set)) and live <= self._known:
            return live
        return self._known.intersection(live)

    def __repr__(self) -> str:
        return f"<Ring workers={len(self._workers)} positions={len(self._positions)}>"


def place(
    ring: Ring,
    label: str,
    load: Mapping[str, int],
    alpha: float = ALPHA,
    live: Collection[str] | None = None,
    *,
    total: int | None = None,
) -> str:
    """Choose the worker for one more request of trajectory `label` (Alg. 1).

    A live worker w is eligible when L(w) <= alpha (L_tot + 1) / W (Eq. 9); L_tot and W count live workers.
    Home if eligible, else the first eligible one clockwise from it, else home.

    Args:
        ring: the workers.
        label: κ, the trajectory's label, compared as a whole.
        load: L, requests in flight per worker, queued and running, without the one to place; 0 where missing.
        alpha: bound on a worker's share of the load, >= 1.
        live: workers that answer; all when None. Names that are not on the ring are ignored.
        total: L_tot, where the caller keeps it: the sum of `load` over the live workers of the ring. Summed up here
            when None, which is most of the time that a decision takes among 64 workers.

    Raises:
        ValueError: `alpha` is below 1, or no worker of the ring is live.
    """
    if not alpha >= 1:
        raise ValueError(f"alpha must be 1 or more, not {alpha!r}: below it no worker may be eligible")
    alive = ring.live(live)
    if total is None:
        total = sum(map(load.get, alive, repeat(0)))
    bound = alpha * (total + 1)  # Eq. 9 times W: one rounding instead of two
    home = None
    for worker in ring.walk(label):
        if live is not None and worker not in alive:
            continue
        if load.get(worker, 0) * len(alive) <= bound:
            return worker
        if home is None:
            home = worker
    if home is None:
        raise _none_live(ring)
    return home


def _none_live(ring: Ring) -> ValueError:
    return ValueError(f"none of the {len(ring.workers)} workers is live: wait until one answers, or add one")
