"""LBCH against a reference written from Eq. 9, and the faults that users of sticky routers reported."""

import hashlib
import math
import os
import random
import subprocess
import sys
from bisect import bisect_left
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentbatch.policy.lbch import Ring, blake2b_64, place

ROOT = Path(__file__).parents[2]
WORKERS = tuple(f"http://worker-{i}:30000" for i in range(4))
RING = Ring(WORKERS)
LABELS = st.text(max_size=20)
ALPHAS = st.sampled_from([1, 1.0, 1.25, 1.5, 2.0, 100.0])


def reference(ring: Ring, label: str, load: dict[str, int], alpha: float, live: set[str]) -> str:
    """Alg. 1, in fractions."""
    walk = [worker for worker in ring.walk(label) if worker in live]
    bound = Fraction(alpha) * (sum(load[worker] for worker in live) + 1) / len(live)
    return next((worker for worker in walk if load[worker] <= bound), walk[0])


@given(
    label=LABELS,
    loads=st.lists(st.integers(0, 2) | st.integers(0, 50), min_size=4, max_size=4),
    alpha=ALPHAS,
    live=st.sets(st.sampled_from(WORKERS), min_size=1),
)
def test_agrees_with_the_reference(label: str, loads: list[int], alpha: float, live: set[str]) -> None:
    """Case 39, prime-rl#3255 and verl#6533: sticky to a saturated worker. No pick is over the bound here."""
    load = dict(zip(WORKERS, loads, strict=True))
    chosen = place(RING, label, load, alpha, live)
    assert chosen == reference(RING, label, load, alpha, live)
    assert load[chosen] * len(live) <= alpha * (sum(load[worker] for worker in live) + 1)
    assert chosen == place(RING, label, load, alpha, frozenset(live), total=sum(load[worker] for worker in live))
    if live == set(WORKERS):
        assert chosen == place(RING, label, load, alpha)


@given(steps=st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=200), alpha=ALPHAS)
def test_the_bound_holds_as_requests_come_and_go(steps: list[tuple[int, bool]], alpha: float) -> None:
    """Case 39: two hot trajectories never push a worker over its share while another may take the turn."""
    load: Counter[str] = Counter()
    running: list[str] = []
    for label, starts in steps:
        if starts or not running:
            worker = place(RING, f"hot-{label % 2}", load, alpha)
            assert load[worker] <= alpha * (len(running) + 1) / len(WORKERS)
            load[worker] += 1
            running.append(worker)
        else:
            load[running.pop(label % len(running))] -= 1


@pytest.mark.parametrize("run", range(20))
def test_a_burst_of_new_labels_spreads(run: int) -> None:
    """Case 40, llm-d#2515: ties in a burst all picked the same pod."""
    load: Counter[str] = Counter()
    for sample in range(64):
        load[place(RING, f"run{run}-{sample}", load)] += 1
    assert sum(load.values()) == 64
    assert max(load.values()) <= math.ceil(1.25 * 16) + 1


def test_a_trajectory_returns_home_as_soon_as_home_is_eligible() -> None:
    home = RING.home("run-1")
    following = next(worker for worker in RING.walk("run-1") if worker != home)
    assert place(RING, "run-1", {home: 1}) == following
    assert place(RING, "run-1", {home: 1, following: 2}) == home
    assert place(RING, "run-1", {home: 1, following: 2}, alpha=1) == home  # 1 <= 1 * (3 + 1) / 4: just so
    assert place(RING, "run-1", {}) == home


def test_labels_are_compared_as_a_whole() -> None:
    """Case 38, vLLM router#219: session-1 matched session-12. Each of 10,000 ids stands where its own hash says."""
    points = sorted((blake2b_64(f"{worker}#{i}"), worker) for worker in WORKERS for i in range(150))
    labels = [f"session-{i}" for i in range(10_000)]
    homes = {}
    for label in labels:
        at = bisect_left(points, (blake2b_64(label), ""))
        homes[label] = points[at % len(points)][1]
    shuffled = random.Random(38).sample(labels, len(labels))
    assert {label: RING.home(label) for label in shuffled} == homes
    assert len({blake2b_64(label) for label in labels}) == len(labels)
    together = sum(homes[f"session-{i}"] == homes[f"session-{i}2"] for i in range(1, 1000))
    assert 150 < together < 350  # a prefix tells nothing: one pair in four meets by chance


@pytest.mark.parametrize("dead", WORKERS)
def test_when_a_worker_dies_only_its_keys_move(dead: str) -> None:
    """Case 41, sglang#14532: one failing worker moved everybody and dragged the others down."""
    live = set(WORKERS) - {dead}
    smaller = Ring(sorted(live))
    moved = Counter()
    for i in range(2000):
        before, after = RING.home(f"run-{i}"), RING.home(f"run-{i}", live)
        assert after != dead
        assert after == smaller.home(f"run-{i}") == place(RING, f"run-{i}", {dead: 99}, live=live)
        if before == dead:
            moved[after] += 1
        else:
            assert before == after
    assert set(moved) == live  # and its keys spread over all that are left


def test_shares_are_even() -> None:
    shares = Counter(RING.home(f"run-{i}") for i in range(10_000))
    assert min(shares.values()) > 1_900
    assert max(shares.values()) < 3_100


def test_walk_on_a_ring_laid_by_hand() -> None:
    positions = {"a#0": 10, "b#0": 20, "a#1": 30, "c#0": 40, "b#1": 50, "c#1": 60}
    labels = {"before a": 5, "on b": 20, "after b": 21, "past the end": 61}
    ring = Ring(["a", "b", "c"], vnodes=2, hash=(positions | labels).__getitem__)
    assert list(ring.walk("before a")) == ["a", "b", "c"]
    assert list(ring.walk("on b")) == ["b", "a", "c"]
    assert list(ring.walk("after b")) == ["a", "c", "b"]
    assert list(ring.walk("past the end")) == ["a", "b", "c"]
    assert ring.home("after b", live={"b", "c"}) == "c"
    assert place(ring, "after b", {"a": 3, "c": 3, "b": 0}, live=["a", "b", "c", "unknown"]) == "b"
    assert repr(ring) == "<Ring workers=3 positions=6>"


def test_the_order_of_workers_changes_nothing() -> None:
    def same(_: str) -> int:
        return 7

    for hash in (blake2b_64, same):
        rings = [Ring(order, hash=hash) for order in (WORKERS, WORKERS[::-1])]
        for i in range(200):
            assert list(rings[0].walk(f"run-{i}")) == list(rings[1].walk(f"run-{i}"))


class Busier(dict[str, int]):
    """Counts that jump once they have been summed: no worker is eligible then, which honest counts never show."""

    reads = 0

    def get(self, key: str, default: Any = None) -> Any:
        self.reads += 1
        return 0 if self.reads <= len(WORKERS) else 100


def test_home_when_nobody_is_eligible() -> None:
    assert place(RING, "run-1", Busier()) == RING.home("run-1")


DIGEST = """
import hashlib
from agentbatch.policy.lbch import Ring
ring = Ring([f"http://worker-{i}:30000" for i in range(4)])
print(hashlib.sha256("".join(ring.home(f"run-{i}") for i in range(500)).encode()).hexdigest())
"""


@pytest.mark.parametrize("seed", ["0", "1", "random"])
def test_placement_is_the_same_in_every_process(seed: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DIGEST],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    )
    here = hashlib.sha256("".join(RING.home(f"run-{i}") for i in range(500)).encode()).hexdigest()
    assert done.stdout.strip() == here


def test_positions_never_change() -> None:
    """A new hash would send every running trajectory to a cold cache, and part the runtime from the gateway."""
    assert blake2b_64("a#0") == 0xAB60D3F47D8EBE19
    ring = Ring(["a", "b", "c", "d"])
    assert [ring.home(label) for label in ("session-1", "session-12", "run-7", "κ")] == ["b", "b", "a", "c"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workers": []}, "one name or more"),
        ({"workers": "abc"}, "one name or more"),
        ({"workers": ["a", "b", "a"]}, "named twice"),
        ({"workers": ["a"], "vnodes": 0}, "vnodes must be 1 or more"),
    ],
)
def test_a_ring_that_cannot_be(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Ring(**arguments)


@pytest.mark.parametrize("alpha", [0.99, 0, -1, math.nan])
def test_alpha_is_at_least_one(alpha: float) -> None:
    with pytest.raises(ValueError, match="alpha must be 1 or more"):
        place(RING, "run-1", {}, alpha)


@pytest.mark.parametrize("kind", [set, frozenset, list, tuple])
def test_names_that_are_not_on_the_ring_are_ignored_however_they_come(kind: Any) -> None:
    live = kind([*WORKERS[1:], "unknown"])
    assert set(RING.live(live)) == set(WORKERS[1:])
    for i in range(50):
        assert place(RING, f"run-{i}", {}, live=live) == RING.home(f"run-{i}", WORKERS[1:])


@pytest.mark.parametrize("live", [[], {"unknown"}])
def test_no_live_worker(live: Any) -> None:
    with pytest.raises(ValueError, match="none of the 4 workers is live"):
        place(RING, "run-1", {}, live=live)
    with pytest.raises(ValueError, match="none of the 4 workers is live"):
        RING.home("run-1", live)
