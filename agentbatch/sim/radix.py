"""A path-compressed prefix tree over pieces of text, with exact token accounting.

Lives here: which prefixes are resident, how long a match is, which parts are locked, which leaf is oldest.
Must not: pool sizes, recurrent states' rules (`cache`), requests.

A *piece* is `(content id, tokens)`: equal pieces in the same place are the same text. The simulator uses a
few big pieces per turn, the HTTP side one per 64 bytes. A node holds a run of pieces; nodes split only
between pieces, and the lower half of a split keeps its identity, so that a lock on a node's end stays where
it was.

A lock protects a node and everything above it. Only the first lock below a node marks it, so locking costs
the unmarked part of the path. Last use works the same way: an evicted child hands its stamp to its parent,
which equals stamping the whole path at each use (SGLang's `last_access_time`) without walking it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING

from agentbatch.sim.lru import OldestFirst

if TYPE_CHECKING:
    from agentbatch.sim.states import State

Piece = tuple[Hashable, int]
"""Content id and length in tokens, > 0."""


class Node:
    """A run of pieces below its parent; `start` and `end` are its token depths."""

    __slots__ = ("active", "children", "end", "parent", "pieces", "queued", "stamp", "start", "states")

    def __init__(
        self, parent: Node | None, pieces: tuple[Piece, ...], start: int, end: int, stamp: int
    ) -> None:
        self.parent = parent
        self.pieces = pieces
        self.start = start
        self.end = end
        self.stamp = stamp
        self.queued = False
        self.active = 0  # locks on this node + children that are active
        self.children: dict[Piece, Node] = {}
        self.states: list[State] = []  # recurrent states cached at depths in (start, end], shallow first

    def __repr__(self) -> str:
        return f"<Node {self.start}..{self.end} children={len(self.children)} active={self.active}>"


class RadixTree:
    """Resident prefixes: `tokens` in all, `locked_tokens` of them on the path of some lock."""

    def __init__(self) -> None:
        self.root = Node(None, (), 0, 0, 0)
        self.tokens = 0
        self.locked_tokens = 0
        self._clock = 0
        self._leaves: OldestFirst[Node] = OldestFirst(is_evictable)

    def tick(self) -> int:
        """Return the next stamp of logical time."""
        self._clock += 1
        return self._clock

    def descend(self, pieces: Sequence[Piece], node: Node | None = None, index: int = 0) -> tuple[Node, int]:
        """Go down as far as `pieces` are resident, splitting a node where they part, and mark the use.

        Args:
            pieces: the whole sequence.
            node, index: where to start: `node` ends after `pieces[:index]`; the root by default.

        Returns:
            The node that ends exactly where the match does, and the number of pieces matched.
        """
        node = self.root if node is None else node
        while index < len(pieces):
            child = node.children.get(pieces[index])
            if child is None:
                break
            shared = _shared(child.pieces, pieces, index)
            index += shared
            if shared < len(child.pieces):
                node = self._split(child, shared)
                break
            node = child
        node.stamp = self.tick()
        return node, index

    def extend(self, node: Node, pieces: Sequence[Piece]) -> Node:
        """Add `pieces` as a new leaf below `node`; no child of it starts with the same piece."""
        run = tuple(pieces)
        tokens = sum(tokens for _, tokens in run)
        leaf = Node(node, run, node.end, node.end + tokens, self.tick())
        node.children[run[0]] = leaf
        self.tokens += tokens
        self._leaves.offer(leaf)
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
        leaf.parent = None
        parent.stamp = max(parent.stamp, leaf.stamp)
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
        middle = node.start + sum(tokens for _, tokens in head)
        upper = Node(parent, head, node.start, middle, node.stamp)
        parent.children[head[0]] = upper
        node.parent, node.pieces, node.start = upper, node.pieces[count:], middle
        upper.children[node.pieces[0]] = node
        upper.active = 1 if node.active else 0
        upper.states = [state for state in node.states if state.depth <= middle]
        node.states = node.states[len(upper.states):]
        for state in upper.states:
            state.node = upper
        return upper


def is_evictable(node: Node) -> bool:
    """Tell whether `node` is a leaf that nothing locks."""
    return not node.children and not node.active and node.parent is not None


def _shared(run: tuple[Piece, ...], pieces: Sequence[Piece], index: int) -> int:
    """Count the leading pieces of `run` found at `pieces[index:]`."""
    if tuple(pieces[index:index + len(run)]) == run:
        return len(run)
    count = 0
    for mine, other in zip(run, pieces[index:index + len(run)], strict=False):
        if mine != other:
            break
        count += 1
    return count
