"""The prefix tree against a model that keeps every resident prefix of pieces in a set."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentbatch.sim.lru import OldestFirst
from agentbatch.sim.radix import Node, Piece, RadixTree

PIECES: list[Piece] = [("a", 1), ("b", 2), ("c", 70), ("d", 64)]
SEQUENCES = st.lists(st.sampled_from(PIECES), max_size=6).map(tuple)
Prefix = tuple[Piece, ...]


def prefixes(sequence: Prefix) -> list[Prefix]:
    return [sequence[:count] for count in range(1, len(sequence) + 1)]


class Tree(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.tree = RadixTree()
        self.resident: set[Prefix] = set()
        self.used: dict[Prefix, int] = {}
        self.locks: list[tuple[Node, Prefix]] = []
        self.time = 0

    def descend(self, sequence: Prefix) -> tuple[Node, int]:
        """Go down; where that splits a node, both halves count as used now, and nothing above them does."""
        before = sum(1 for _ in self.tree.nodes())
        node, index = self.tree.descend(sequence)
        if sum(1 for _ in self.tree.nodes()) > before:
            (lower,) = node.children.values()
            for half in (node, lower):
                self.time += 1
                self.used |= dict.fromkeys(self.ends_of(half), self.time)
        return node, index

    def use(self, node: Node, sequence: Prefix) -> None:
        self.tree.touch(node)
        self.time += 1
        for prefix in prefixes(sequence):
            self.used[prefix] = self.time

    def path(self, node: Node) -> Prefix:
        return () if node.parent is None else self.path(node.parent) + node.pieces

    def protected(self) -> set[Prefix]:
        return {prefix for _, held in self.locks for prefix in prefixes(held)}

    @rule(sequence=SEQUENCES)
    def match(self, sequence: Prefix) -> None:
        longest = max((len(p) for p in prefixes(sequence) if p in self.resident), default=0)
        node, index = self.descend(sequence)
        assert index == longest
        assert self.path(node) == sequence[:index]
        assert node.end == sum(tokens for _, tokens in sequence[:index])
        self.use(node, sequence[:index])

    @rule(sequence=SEQUENCES)
    def insert(self, sequence: Prefix) -> None:
        node, index = self.descend(sequence)
        if index < len(sequence):
            node = self.tree.extend(node, sequence[index:])
        self.use(node, sequence)
        self.resident |= set(prefixes(sequence))

    @rule(sequence=SEQUENCES)
    def lock(self, sequence: Prefix) -> None:
        node, index = self.descend(sequence)
        self.use(node, sequence[:index])
        self.tree.lock(node)
        self.locks.append((node, sequence[:index]))

    @precondition(lambda self: self.locks)
    @rule(data=st.data())
    def unlock(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, len(self.locks) - 1))
        self.tree.unlock(self.locks.pop(place)[0])

    @rule()
    def evict_oldest(self) -> None:
        protected = self.protected()
        nodes = list(self.tree.nodes())
        free = [node for node in nodes if not node.children and self.path(node) not in protected]
        leaf = self.tree.oldest_leaf()
        if not free:
            assert leaf is None
            return
        assert leaf is not None
        path = self.path(leaf)
        assert leaf in free
        assert self.used[path] == min(self.used[self.path(node)] for node in free)
        gone = set(prefixes(path)[len(path) - len(leaf.pieces):])
        assert self.tree.drop(leaf) == sum(tokens for _, tokens in leaf.pieces)
        assert not gone & protected
        self.resident -= gone

    @invariant()
    def accounts_agree(self) -> None:
        assert self.tree.tokens == sum(prefix[-1][1] for prefix in self.resident)
        assert self.tree.locked_tokens == sum(prefix[-1][1] for prefix in self.protected())
        assert {p for node in self.tree.nodes() for p in self.ends_of(node)} == self.resident

    @invariant()
    def a_lock_stays_where_it_was_put(self) -> None:
        for node, held in self.locks:
            assert self.path(node) == held

    def ends_of(self, node: Node) -> list[Prefix]:
        path = self.path(node)
        return prefixes(path)[len(path) - len(node.pieces):]


TestTree = Tree.TestCase


def test_a_shared_prefix_is_stored_once_and_split_where_paths_part() -> None:
    tree = RadixTree()
    for tail in ("x", "y"):
        sequence = [("system", 100), (tail, 10)]
        node, index = tree.descend(sequence)
        tree.extend(node, sequence[index:])
    assert tree.tokens == 120
    assert sorted((node.start, node.end) for node in tree.nodes()) == [(0, 100), (100, 110), (100, 110)]


def test_a_piece_of_another_length_is_another_piece() -> None:
    tree = RadixTree()
    tree.extend(tree.root, [("text", 10)])
    assert tree.descend([("text", 11)])[1] == 0


def test_dropping_a_locked_leaf_is_a_defect() -> None:
    tree = RadixTree()
    leaf = tree.extend(tree.root, [("a", 1)])
    tree.lock(leaf)
    with pytest.raises(AssertionError, match="not an unlocked leaf"):
        tree.drop(leaf)


def test_candidates_that_die_do_not_pile_up() -> None:
    class Item:
        def __init__(self, stamp: int) -> None:
            self.stamp = stamp
            self.queued = False
            self.alive = True

    heap: OldestFirst[Item] = OldestFirst(lambda item: item.alive)
    survivor = Item(0)
    heap.offer(survivor)
    for stamp in range(1, 10_000):
        item = Item(stamp)
        heap.offer(item)
        item.alive = False
    assert len(heap._heap) <= 128
    survivor.stamp = 20_000
    assert heap.take() is survivor
    assert heap.take() is None
