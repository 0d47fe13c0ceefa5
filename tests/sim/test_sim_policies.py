"""Who is admitted next: one place, taken by a long request while others gather behind it."""

import math
from collections.abc import Sequence

import pytest

from agentbatch.sim import FirstToken, Request, StepCost, Transcript, Worker, WorkerConfig
from agentbatch.sim.radix import Piece
from agentbatch.sim.waiting import MATCH_MAX, REFRESH_PASSES

FLAT = StepCost(decode_base=((1, 1.0),), context_s=0.0, prefill_step_s=0.0, prefill_token_s=1e-4, attention_s=0.0)


class OneAtATime:
    """A worker that runs one request, with `warm` conversations cached in order."""

    def __init__(self, policy: str, warm: dict[str, Sequence[Piece]] | None = None, **change: object) -> None:
        settings: dict[str, object] = {
            "cost": FLAT, "kv_tokens": 200_000, "max_running_requests": 1, "schedule_policy": policy, **change,
        }  # fmt: skip
        self.engine = Worker(WorkerConfig(**settings))  # type: ignore[arg-type]
        self.now_s = 0.0
        self.order: list[object] = []
        for rid, pieces in (warm or {}).items():
            self.ask(f"warm {rid}", pieces, label=rid)
            self.drain()
        self.order.clear()

    def ask(self, rid: str, pieces: Sequence[Piece], output: int = 1, label: str | None = None) -> None:
        tokens = sum(tokens for _, tokens in pieces)
        self.engine.submit(
            Request(rid=rid, prompt_tokens=tokens, output_tokens=output, prompt=pieces, label=label,
                    reply=((f"{rid}'s reply", output),)), self.now_s,
        )  # fmt: skip

    def block(self) -> None:
        """Let a long request take the place."""
        self.ask("long", [("long", 10)], output=1000)
        self.order += [event.rid for event in self.engine.advance(self.now_s + 1)]
        self.now_s += 1
        self.order.clear()

    def drain(self) -> list[object]:
        while (due_s := self.engine.next_event_s()) != math.inf:
            self.now_s = due_s
            self.order += [event.rid for event in self.engine.advance(due_s) if isinstance(event, FirstToken)]
        return self.order


def test_fcfs_keeps_the_order_of_arrival() -> None:
    one = OneAtATime("fcfs", {"a": [("a", 500)]})
    one.block()
    for rid, pieces in {"cold": [("x", 50)], "hit": [("a", 500), ("on", 9)], "late": [("y", 50)]}.items():
        one.ask(rid, pieces)
    assert one.drain() == ["cold", "hit", "late"]


def test_lpm_takes_the_longest_hit_and_puts_twins_of_a_cold_prefix_last() -> None:
    one = OneAtATime("lpm", {name: [(name, tokens)] for name, tokens in (("a", 100), ("b", 500), ("c", 300))})
    one.block()
    asked: dict[str, list[Piece]] = {
        "cold": [("x", 50)], "twin 1": [("t", 200), ("one", 9)], "twin 2": [("t", 200), ("two", 9)],
        "a+": [("a", 100), ("on", 9)], "b+": [("b", 500), ("on", 9)], "c+": [("c", 300), ("on", 9)],
        "short": [("t2", 20), ("one", 9)], "also short": [("t2", 20), ("one", 9)], "tie": [("y", 50)],
    }  # fmt: skip
    for rid, pieces in asked.items():
        one.ask(rid, pieces)
    # the second twin comes last until the first has left its prompt; then it hits
    assert one.drain() == ["b+", "c+", "a+", "cold", "twin 1", "twin 2", "short", "also short", "tie"]


def test_lpm_leaves_a_long_queue_as_it_is() -> None:
    one = OneAtATime("lpm", {"a": [("a", 500)]})
    one.block()
    for number in range(MATCH_MAX):
        one.ask(f"cold {number}", [(number, 50)])
    one.ask("hit", [("a", 500), ("on", 9)])
    order = one.drain()
    assert order[:2] == ["cold 0", "hit"]  # 129 wait at first, 128 then


def test_dfs_weight_takes_the_heaviest_subtree_and_what_hits_nothing_last() -> None:
    one = OneAtATime("dfs-weight", {
        "a": [("a", 500)], "b": [("b", 500)], "b1": [("b", 500), ("1", 64)], "b2": [("b", 500), ("2", 64)],
    })  # fmt: skip
    one.block()
    asked: dict[str, list[Piece]] = {
        "cold": [("x", 50)], "a+": [("a", 500), ("on", 9)], "at b": [("b", 500), ("on", 9)],
        "below b2": [("b", 500), ("2", 64), ("on", 9)], "below b1": [("b", 500), ("1", 64), ("on", 9)],
        "below b1 too": [("b", 500), ("1", 64), ("more", 9)],
    }  # fmt: skip
    for rid, pieces in asked.items():
        one.ask(rid, pieces)
    order = one.drain()
    assert order[0] == "below b1"  # b weighs four, and in it b1 two
    assert order[-1] == "cold"
    # then a, b1 and b2 weigh the same, or b's subtree still more, until only `at b` is left of it
    assert order == ["below b1", "below b1 too", "below b2", "a+", "at b", "cold"]


def test_routing_prefix_takes_known_labels_first_and_asks_once() -> None:
    one = OneAtATime("routing-prefix", {"a": [("a", 100)], "b": [("b", 500)], "c": [("c", 300)]}, label_capacity=2)
    one.block()
    before = one.engine.statistics()
    for rid, pieces, label in (
        ("new", [("x", 50)], "n"), ("a+", [("a", 100), ("on", 9)], "a"), ("c+", [("c", 300), ("on", 9)], "c"),
        ("b+", [("b", 500), ("on", 9)], "b"), ("nobody", [("b", 500), ("off", 9)], None),
    ):  # fmt: skip
        one.ask(rid, pieces, label=label)
    # a was admitted longest ago and is forgotten; each admission of a new label pushes another one out
    assert one.drain() == ["b+", "c+", "new", "a+", "nobody"]
    after = one.engine.statistics()
    assert after.matches - before.matches == 2
    assert after.labels == 2
    assert after.lookups_avoided > before.lookups_avoided


def test_fcfs_keeps_fresh_what_waiting_requests_have_cached_every_32nd_pass() -> None:
    one = OneAtATime("fcfs")
    one.block()
    begun = one.engine.statistics()
    for number in range(40):
        one.ask(f"r{number}", [(number, 50)])
    one.drain()
    after = one.engine.statistics()
    assert after.passes - begun.passes == 40  # one request a pass
    refreshed = (begun.passes + number for number in range(40))
    waited = [40 - (number - begun.passes) for number in refreshed if number % REFRESH_PASSES == 0]
    assert after.matches - begun.matches == sum(waited) > 0


@pytest.mark.parametrize("policy", ["fcfs", "lpm", "dfs-weight", "routing-prefix"])
def test_a_transcript_gives_what_plain_pieces_give(policy: str) -> None:
    def hits(shared: bool) -> list[tuple[object, float, int]]:
        engine = Worker(WorkerConfig(
            cost=FLAT, kv_tokens=3000, state_slots=12, max_running_requests=2, schedule_policy=policy,
            chunked_prefill_tokens=256,
        ))  # fmt: skip
        texts = [Transcript([("system", 100), (k, 60 + 7 * k)]) for k in range(5)]
        found = []
        turns = dict.fromkeys(range(5), 0)

        def ask(k: int, now_s: float) -> None:
            text, output = texts[k], 20 + 5 * k
            prompt = text.upto()
            engine.submit(
                Request(rid=k, prompt_tokens=prompt.tokens, output_tokens=output, label=str(k),
                        prompt=prompt if shared else tuple(text.pieces), reply=(((k, turns[k], "r"), output),)), now_s,
            )  # fmt: skip

        for k in turns:
            ask(k, 0.0)
        while (due_s := engine.next_event_s()) != math.inf:
            for event in engine.advance(due_s):
                if isinstance(event, FirstToken) or not isinstance(event.rid, int):
                    continue
                k = event.rid
                found.append((k, event.at_s, event.cached_tokens))
                texts[k].extend([((k, turns[k], "r"), 20 + 5 * k), ((k, turns[k], "a"), 40)])
                turns[k] += 1
                if turns[k] < 6:
                    ask(k, event.at_s)
        return found

    assert hits(shared=True) == hits(shared=False)
    assert any(cached for _, _, cached in hits(shared=True))


@pytest.mark.parametrize(("policy", "overlap", "lookups"), [
    ("fcfs", False, 0), ("lpm", False, 3 + 2 + 1), ("dfs-weight", False, 3 + 2 + 1), ("lpm", True, 0),
])
def test_the_engine_waits_for_the_lookups_of_a_pass(policy: str, overlap: bool, lookups: int) -> None:
    def ends_s(match_s: float) -> float:
        cost = StepCost(decode_base=((1, 1.0),), context_s=0.0, prefill_step_s=0.0, prefill_token_s=1e-4,
                        attention_s=0.0, match_s=match_s)
        one = OneAtATime(policy, cost=cost, overlap=overlap)
        for rid in ("a", "b", "c"):
            one.ask(rid, [(rid, 50)])
        one.drain()
        assert one.order == ["a", "b", "c"]
        return one.now_s

    first_refresh = 3 if policy == "fcfs" else 0  # fcfs looks up in its first pass only
    assert ends_s(0.25) - ends_s(0.0) == pytest.approx(0.25 * (lookups + first_refresh))
