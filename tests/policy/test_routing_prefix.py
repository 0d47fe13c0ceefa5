"""RP against a ten-line model of Alg. 2, and its promises one by one."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentbatch.policy.routing_prefix import RoutingPrefix

CAPACITY = 3
LABELS = [None, "", "a", "b", "c", "d", "e"]


@dataclass(eq=False)
class Ask:
    rid: int
    label: str | None
    again: bool = False


def policy(capacity: int, lookup: Callable[[Ask], int]) -> RoutingPrefix[Ask]:
    return RoutingPrefix(capacity, rid=lambda ask: ask.rid, label=lambda ask: ask.label, lookup=lookup,
                         retracted=lambda ask: ask.again)


class Model:
    """Alg. 2, written down as it stands."""

    def __init__(self) -> None:
        self.a: list[str] = []
        self.known: dict[int, int] = {}
        self.t: dict[int, int] = {}
        self.next = 0

    def order(self, queue: list[Ask], hits: dict[str | None, int]) -> list[Ask]:
        def key(q: Ask) -> tuple[int, int, int]:
            if not q.label or q.label not in self.a:
                return (1, 0, self.t[q.rid])
            return (0, -self.known.setdefault(q.rid, hits.get(q.label, 0)), self.t[q.rid])

        for q in queue:
            if q.rid not in self.t:
                self.next += 1
                self.t[q.rid] = self.next
        return sorted(queue, key=key)

    def admitted(self, q: Ask) -> None:
        self.known.pop(q.rid, None)
        self.t.pop(q.rid, None)
        if q.label:
            self.a = [*(label for label in self.a if label != q.label), q.label][-CAPACITY:]


class Orders(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.hits: dict[str | None, int] = {}
        self.looked: list[int] = []
        self.policy = policy(CAPACITY, self.lookup)
        self.model = Model()
        self.queue: list[Ask] = []
        self.running: list[Ask] = []
        self.expected_waits = 0
        self.rids = 0

    def lookup(self, ask: Ask) -> int:
        self.looked.append(ask.rid)
        return self.hits.get(ask.label, 0)

    @rule(label=st.sampled_from(LABELS))
    def arrive(self, label: str | None) -> None:
        self.rids += 1
        self.queue.append(Ask(self.rids, label))

    @rule(label=st.sampled_from(LABELS), hit=st.integers(0, 3))
    def cache_changes(self, label: str | None, hit: int) -> None:
        self.hits[label] = hit

    @rule()
    def one_pass(self) -> None:
        expected = self.model.order(self.queue, self.hits)
        was = list(self.queue)
        changed = self.policy.order(self.queue)
        assert self.queue == expected
        assert changed or self.queue == was
        self.expected_waits += len(self.queue)

    @precondition(lambda self: self.queue)
    @rule(count=st.integers(1, 3))
    def admit(self, count: int) -> None:
        for _ in range(min(count, len(self.queue))):
            ask = self.queue.pop(0)
            self.policy.admitted(ask)
            self.model.admitted(ask)
            self.running.append(ask)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def retract(self, data: st.DataObject) -> None:
        ask = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        ask.again = True
        self.queue.append(ask)  # the same object, as in SGLang

    @precondition(lambda self: self.queue)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        self.queue.pop(data.draw(st.integers(0, len(self.queue) - 1)))

    @invariant()
    def accounts_agree(self) -> None:
        stats = self.policy.statistics()
        assert list(self.policy.labels) == self.model.a
        assert (stats.labels, stats.capacity) == (len(self.model.a), CAPACITY)
        assert stats.lookups == len(self.looked)
        assert stats.lookups + stats.avoided == self.expected_waits
        assert stats.relookups <= stats.lookups


TestOrders = Orders.TestCase


def test_a_hit_is_looked_up_once_and_stays_as_recorded() -> None:
    hits = {1: 10, 2: 20, 3: 0}
    rp = policy(4, lambda ask: hits[ask.rid])
    for label in "ab":
        rp.admitted(Ask(0, label))
    queue = [Ask(1, "a"), Ask(2, "b"), Ask(3, "new")]
    assert rp.order(queue)
    hits[1] = 500
    queue.append(Ask(4, None))
    assert rp.order(queue)
    assert [ask.rid for ask in queue] == [2, 1, 3, 4]
    assert rp.statistics().lookups == 2


def test_a_pass_with_nothing_new_neither_sorts_nor_looks_up() -> None:
    rp = policy(2, lambda ask: pytest.fail("no label is known"))
    queue = [Ask(1, "a"), Ask(2, "b")]
    assert [rp.order(queue) for _ in range(5)] == [True, False, False, False, False]
    assert (rp.statistics().passes, rp.statistics().sorts, rp.statistics().avoided) == (5, 1, 10)


def test_a_label_admitted_again_changes_its_place_but_no_key() -> None:
    rp = policy(2, lambda ask: 0)
    rp.admitted(Ask(1, "a"))
    rp.admitted(Ask(2, "b"))
    queue = [Ask(3, "c")]
    rp.order(queue)
    rp.admitted(Ask(4, "a"))
    assert not rp.order(queue)
    rp.admitted(Ask(5, "d"))
    assert rp.labels == ("a", "d")
    assert rp.order(queue)


def test_a_retracted_request_is_looked_up_again_and_goes_behind_its_equals() -> None:
    rp = policy(2, lambda ask: 7)
    first = Ask(1, "a")
    rp.admitted(first)
    waiting = Ask(2, "a")
    rp.order([waiting])
    queue = [waiting, Ask(1, "a", again=True)]
    rp.order(queue)
    assert [ask.rid for ask in queue] == [2, 1]
    assert (rp.statistics().lookups, rp.statistics().relookups) == (2, 1)


def test_a_queue_that_was_admitted_whole_and_retracted_whole_is_sorted_anew() -> None:
    hits = {1: 50, 2: 10}
    rp = policy(2, lambda ask: hits[ask.rid])
    for label in "ab":
        rp.admitted(Ask(0, label))
    asks = [Ask(1, "a"), Ask(2, "b")]
    rp.order(asks)
    assert [ask.rid for ask in asks] == [1, 2]
    for ask in asks:
        rp.admitted(ask)
        ask.again = True
    hits[2] = 90  # what it computed before it was retracted
    assert rp.order(asks)
    assert [ask.rid for ask in asks] == [2, 1]
    assert (rp.statistics().lookups, rp.statistics().relookups) == (4, 2)


def test_requests_without_a_label_share_nothing() -> None:
    rp = policy(2, lambda ask: pytest.fail("an unlabelled request was looked up"))
    for label in (None, ""):
        rp.admitted(Ask(1, label))
    queue = [Ask(2, ""), Ask(3, None), Ask(4, "")]
    rp.order(queue)
    assert [ask.rid for ask in queue] == [2, 3, 4]
    assert rp.labels == ()


@pytest.mark.parametrize("capacity", [0, -1, True, 2.0])
def test_a_capacity_that_is_none_is_refused(capacity: int) -> None:
    with pytest.raises(ValueError, match="use fcfs"):
        policy(capacity, lambda ask: 0)
