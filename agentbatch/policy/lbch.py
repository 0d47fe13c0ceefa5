"""Load-bounded consistent hashing: which worker serves a trajectory's next turn (spec §4, Eq. 9, Alg. 1)."""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence


def blake2b_64(text: str) -> int:
    """Hash `text` to 64 bits, the same in every process."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


class Ring:
    """A hash ring of workers, each at `vnodes` positions.

    Args:
        workers: names, all different, at least one.
        vnodes: virtual nodes a worker, at least 1.
        hash: maps text to an integer; must be stable across processes, so never the builtin.

    Raises:
        ValueError: no worker, a worker twice, or no virtual node.
    """

    def __init__(
        self, workers: Sequence[str], *, vnodes: int = 150, hash: Callable[[str], int] = blake2b_64
    ) -> None:
        if not workers:
            raise ValueError("a ring needs at least one worker")
        if len(set(workers)) != len(workers):
            raise ValueError(f"a worker stands twice on the ring: {', '.join(workers)}")
        if vnodes < 1:
            raise ValueError(f"vnodes must be at least 1, not {vnodes}")
        self.workers = tuple(workers)
        self._hash = hash
        nodes = sorted((hash(f"{worker}#{i}"), worker) for worker in workers for i in range(vnodes))
        self._points = [point for point, _ in nodes]
        self._owners = [worker for _, worker in nodes]

    def walk(self, label: str) -> Iterator[str]:
        """Yield each worker once, clockwise from the label's position; the first is its home."""
        start = bisect.bisect_left(self._points, self._hash(label))
        count = len(self._owners)
        seen: set[str] = set()
        for step in range(count):
            worker = self._owners[(start + step) % count]
            if worker not in seen:
                seen.add(worker)
                yield worker
                if len(seen) == len(self.workers):
                    return

    def __repr__(self) -> str:
        return f"<Ring of {len(self.workers)} workers, {len(self._points)} positions>"


def place(
    ring: Ring, label: str, load: Mapping[str, int], alpha: float = 1.25, live: Collection[str] | None = None
) -> str:
    """Choose the worker for one more request of trajectory `label` (Alg. 1).

    A worker is eligible when L(w) <= alpha (L_tot + 1) / W (Eq. 9). Home if eligible, else the first eligible worker
    clockwise from it, else home. Only live workers count; a dead home is passed over.

    Args:
        ring: every worker, live or not.
        label: the trajectory's label.
        load: requests in flight per worker; a missing one has none.
        alpha: load bound, >= 1.
        live: workers that can take requests; all by default.

    Raises:
        ValueError: alpha is below 1, or no worker is live.
    """
    if not alpha >= 1:
        raise ValueError(f"alpha must be at least 1, not {alpha!r}")
    among = ring.workers if live is None else [worker for worker in ring.workers if worker in live]
    if not among:
        raise ValueError("no live worker to place a request on")
    bound = alpha * (sum(load.get(worker, 0) for worker in among) + 1) / len(among)
    home: str | None = None
    for worker in ring.walk(label):
        if live is not None and worker not in live:
            continue
        if home is None:
            home = worker
        if load.get(worker, 0) <= bound:
            return worker
    assert home is not None  # noqa: S101 - `among` is not empty
    return home
