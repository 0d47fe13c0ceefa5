"""A placement decision among 2 to 64 workers, all live and a quarter down, against plain consistent hashing."""

import random
import time

from agentbatch.policy.lbch import ALPHA, Ring, place
from agentbatch.runtime.workers import Workers

LABELS = 20_000
IN_FLIGHT_PER_WORKER = 16


def _loads(ring: Ring, live: frozenset[str]) -> dict[str, int]:
    """Return the counts that LBCH itself brings about, so that some homes are full."""
    load = dict.fromkeys(ring.workers, 0)
    for n in range(IN_FLIGHT_PER_WORKER * len(live)):
        load[place(ring, f"held-{n}", load, live=live)] += 1
    return load


def _us(decide, labels: list[str]) -> float:
    began = time.perf_counter()
    for label in labels:
        decide(label)
    return 1e6 * (time.perf_counter() - began) / len(labels)


def _case(count: int, down: int, labels: list[str], rounds: int) -> dict[str, float]:
    urls = [f"http://10.0.0.{n}:30000/v1" for n in range(count)]
    ring, live = Ring(urls), frozenset(urls[down:])
    load = _loads(ring, live)
    total = sum(load[url] for url in live)
    workers = Workers(urls)
    for url in urls[:down]:
        workers.blame(url, ConnectionResetError())
    for n in range(IN_FLIGHT_PER_WORKER * len(live)):
        workers.take(f"held-{n}")

    def turn(label: str) -> None:
        workers.give_back(workers.take(label))

    ways = {
        "lbch": lambda label: place(ring, label, load, ALPHA, live, total=total),
        "lbch, total summed": lambda label: place(ring, label, load, ALPHA, live),
        "consistent hash": lambda label: ring.home(label, live),
        "Workers.take and give_back": turn,
    }
    us: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):  # in turn: a shared machine's moods hit all alike
        for name, decide in ways.items():
            us[name].append(_us(decide, labels))
    return {name: round(min(values), 2) for name, values in us.items()}


def run(quick: bool = False) -> dict:
    """Return microseconds a decision, best of the rounds; `quick` decides for a tenth of the labels."""
    labels = [f"run-{n}" for n in range(LABELS // 10 if quick else LABELS)]
    random.Random(0).shuffle(labels)
    rounds = 3 if quick else 9
    cases = {
        f"{count} workers, {down or 'none'} down": _case(count, down, labels, rounds)
        for count in (2, 4, 16, 64)
        for down in (0, max(1, count // 4))
    }
    slowest = max(case["lbch"] for case in cases.values())
    return {"us_per_decision": cases, "slowest_lbch_us": slowest, "goal": "lbch <= 5 us at 64 workers, some down"}
