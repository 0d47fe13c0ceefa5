"""dfs-weight: the waiting queue in the order of a walk through the tree, heaviest subtree first.

After SGLang 0.5.23's `_dfs_weight_order`: a node weighs as many waiting requests as resume at it or below; children are
walked by falling weight, siblings of equal weight in their order in the tree; a node's own requests come after those of
its children, so requests without any hit are last. Only nodes where paths part matter, and a kept match remembers
those above it, so that a pass costs the waiting requests and not the tree.
"""

from __future__ import annotations

from agentbatch.sim.batch import Entry
from agentbatch.sim.match import Match
from agentbatch.sim.radix import Node, RadixTree


def sort_by_weight(queue: list[Entry], tree: RadixTree) -> None:
    """Sort `queue` in place; every entry has a match that holds."""
    placed: list[tuple[Entry, Match]] = []
    weight: dict[Node, int] = {}
    for entry in queue:
        match = entry.sought.match
        if match is None:
            raise AssertionError(f"{entry.rid!r} was not matched")
        placed.append((entry, match))
        for child in _branches(match, tree):
            weight[child] = weight.get(child, 0) + 1
    keys = {entry: _key(match, weight) for entry, match in placed}
    queue.sort(key=keys.__getitem__)


def _key(match: Match, weight: dict[Node, int]) -> tuple[int, ...]:
    """Return a key that sorts as the walk goes.

    At each fork (0, -weight, place) of the child taken; where a path ends, a 1, which puts it behind all that goes on;
    then the deepest first, since within a run without forks a node's requests come after those below it.
    """
    key: list[int] = []
    for child in match.branches:
        key += (0, -weight[child], child.place)
    key += (1, -match.resume.end)
    return tuple(key)


def _branches(match: Match, tree: RadixTree) -> tuple[Node, ...]:
    """Return the child taken at each fork on the way to where the match resumes, from the root."""
    if match.forks != tree.forks:
        found: list[Node] = []
        walk = match.resume
        while walk.parent is not None:
            if len(walk.parent.children) > 1:
                found.append(walk)
            walk = walk.parent
        match.branches = tuple(reversed(found))
        match.forks = tree.forks
    return match.branches
