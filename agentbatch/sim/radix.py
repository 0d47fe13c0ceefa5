"""A path-compressed prefix tree over pieces of text, with exact token accounting.

Lives here: which prefixes are resident, how long a match is, which parts are locked, which leaf is oldest.
Must not: pool sizes, recurrent states' rules (`cache`), requests.

A *piece* is `(content id, tokens)`: equal pieces in the same place are the same text. The simulator uses a
few big pieces per turn, the HTTP side one per 64 bytes. A node holds a run of pieces; nodes split only
between pieces, and the lower half of a split keeps its identity, so that a lock on a node's end stays where
it was.

A lock protects a node and everything above it. Only the first lock below a node marks it, so locking costs
the unmarked part of the path. Last use works the same way: an evicted child hands its last use to its parent,
which equals stamping the whole path at each use (SGLang's `last_access_time`) without walking it. A split stamps both
halves, as SGLang does, though nobody used what is above: that is not handed on.

Who keeps a match of a waiting request registers it as a watcher on the nodes that it rests on; the tree and the state
pool mark it stale when one of them changes, so that looking at a kept match costs nothing (`match`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING

from agentbatch.sim.lru import OldestFirst

if TYPE_CHECKING:
    from agentbatch.sim.match import Match
    from agentbatch.sim.states import State

Piece = tuple[Hashable, int]
"""Content id and length in tokens, > 0."""


class Node:
    """A run of pieces below its parent; `start` and `end` are its token depths."""

    __slots__ = (
        "active", "children", "end", "gone", "parent", "pieces", "place", "queued", "stamp", "start", "states",
        "used", "watchers",
    )  # fmt: skip

    def __init__(self, parent: Node | None, pieces: tuple[Piece, ...], start: int, stamp: int, place: int) -> None:
        self.parent = parent  # stays when the node is dropped: from there a lost match goes on upwards
        self.pieces = pieces
        self.start = start
        self.end = start + sum(tokens for _, tokens in pieces)
        self.stamp = stamp  # age for eviction: the last use or split
        self.used = stamp
        self.place = place  # order among its siblings: when the first of its line came to be
        self.gone = False
        self.queued = False
        self.active = 0  # locks on this node + children that are active
        self.children: dict[Piece, Node] = {}
        self.states: list[State] = []  # recurrent states cached at depths in (start, end], shallow first
        self.watchers: set[Match] | None = None

    def __repr__(self) -> str:
        return f"<Node {self.start}..{self.end} children={len(self.children)} active={self.active}>"


class RadixTree:
    """Resident prefixes: `tokens` in all, `locked_tokens` of them on the path of some lock.

    `forks` changes whenever a node gets its second child, loses it, or is split: as long as it stays, paths branch
    where they did.
    """

    def __init__(self) -> None:
        self.root = Node(None, (), 0, 0, 0)
        self.tokens = 0
        self.locked_tokens = 0
        self.forks = 0
        self._clock = 0
        self._leaves: OldestFirst[Node] = OldestFirst(is_evictable)

    def tick(self) -> int:
        """Return the next stamp of logical time."""
        self._clock += 1
        return self._clock

    def touch(self, node: Node) -> None:
        """Mark a use of `node` and all above it."""
        self._clock += 1
        node.stamp = node.used = self._clock

    def descend(
        self, pieces: Sequence[Piece], node: Node | None = None, index: int = 0, stop: int | None = None
    ) -> tuple[Node, int]:
        """Go down as far as `pieces` are resident, splitting a node where they part.

        Args:
            pieces: the whole sequence.
            node, index: where to start: `node` ends after `pieces[:index]`; the root by default.
            stop: how many pieces count; all by default.

        Returns:
            The node that ends exactly where the match does, and the number of pieces matched.
        """
        node = self.root if node is None else node
        stop = len(pieces) if stop is None else stop
        while index < stop:
            child = node.children.get(pieces[index])
            if child is None:
                break
            shared = _shared(child.pieces, pieces, index, stop)
            index += shared
            if shared < len(child.pieces):
                node = self._split(child, shared)
                break
            node = child
        return node, index

    def extend(self, node: Node, pieces: Sequence[Piece]) -> Node:
        """Add `pieces` as a new leaf below `node`; no child of it starts with the same piece."""
        run = tuple(pieces)
        stamp = self.tick()
        leaf = Node(node, run, node.end, stamp, stamp)
        node.children[run[0]] = leaf
        if len(node.children) == 2:
            self.forks += 1
        self.tokens += leaf.end - leaf.start
        self._leaves.offer(leaf)
        outdate(node)
        return leaf

    def lock(self, node: Node) -> None:
        """Protect `node` and all above it from eviction, until `unlock`."""
        walk: Node | None = node
        while walk is not None:
            walk.active += 1
            if walk.active > 1:
                break
            self.locked_tokens += walk.end - walk.start
            walk = walk.parent

    def unlock(self, node: Node) -> None:
        """Take back one `lock` of the same node."""
        walk: Node | None = node
        while walk is not None:
            walk.active -= 1
            if walk.active:
                break
            self.locked_tokens -= walk.end - walk.start
            walk = walk.parent
        if is_evictable(node):
            self._leaves.offer(node)

    def oldest_leaf(self) -> Node | None:
        """Return the unlocked leaf used longest ago, for `drop`; None when everything is locked."""
        return self._leaves.take()

    def drop(self, leaf: Node) -> int:
        """Remove an unlocked leaf and return its tokens; its parent may become a leaf that can go next."""
        parent = leaf.parent
        if parent is None or not is_evictable(leaf):
            raise AssertionError(f"{leaf!r} is not an unlocked leaf")
        del parent.children[leaf.pieces[0]]
        if len(parent.children) == 1:
            self.forks += 1
        leaf.gone = True
        outdate(leaf)
        if leaf.used > parent.used:
            parent.used = leaf.used
            parent.stamp = max(parent.stamp, leaf.used)
        if is_evictable(parent):
            self._leaves.offer(parent)
        freed = leaf.end - leaf.start
        self.tokens -= freed
        return freed

    def nodes(self) -> Iterator[Node]:
        """Yield every node but the root, parents first."""
        stack = list(self.root.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    def _split(self, node: Node, count: int) -> Node:
        """Cut `node` after `count` pieces and return the new upper half."""
        parent = node.parent
        if parent is None:
            raise AssertionError("the root has no pieces to split")
        head = node.pieces[:count]
        upper = Node(parent, head, node.start, self.tick(), node.place)
        upper.used = 0
        node.stamp = self.tick()
        self.forks += 1
        parent.children[head[0]] = upper
        node.parent, node.pieces, node.start = upper, node.pieces[count:], upper.end
        upper.children[node.pieces[0]] = node
        upper.active = 1 if node.active else 0
        upper.states = [state for state in node.states if state.depth <= upper.end]
        node.states = node.states[len(upper.states):]
        for state in upper.states:
            state.node = upper
        outdate(node)
        if node.watchers:  # all stale now; `Matcher.drop` follows them upwards
            upper.watchers = set(node.watchers)
        return upper


def is_evictable(node: Node) -> bool:
    """Tell whether `node` is a leaf that nothing locks."""
    return not (node.children or node.active or node.gone or node.parent is None)


def outdate(node: Node) -> None:
    """Mark the matches that rest on `node` stale."""
    if node.watchers:
        for match in node.watchers:
            match.stale = True


def _shared(run: tuple[Piece, ...], pieces: Sequence[Piece], index: int, stop: int) -> int:
    """Count the leading pieces of `run` found at `pieces[index:stop]`."""
    if len(run) == 1:
        return 1  # the caller found the node under its first piece
    if tuple(pieces[index:min(stop, index + len(run))]) == run:
        return len(run)
    count = 1
    while count < len(run) and index + count < stop and run[count] == pieces[index + count]:
        count += 1
    return count
