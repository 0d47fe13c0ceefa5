"""How much of a prompt a worker has cached, and matches of waiting requests kept until they change.

lpm and dfs-weight match every waiting request in every pass. Walking the tree each time would make a pass cost the
length of all prompts; here a kept match rests on the nodes between its deepest usable state and the end of the
resident text, and whatever changes those (a drop, a split, a new child, a state kept or forgotten) marks it stale.
A stale one is mended from where it was. The results are those of matching anew (tests/sim/test_sim_match.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from agentbatch.sim.radix import Node, Piece, RadixTree
from agentbatch.sim.states import State, StatePool
from agentbatch.sim.transcript import Prefix, Transcript


class Sought:
    """A prompt as the cache sees it: the pieces to match, and the match kept while its request waits."""

    __slots__ = ("count", "match", "pieces", "transcript")

    def __init__(self, prompt: Sequence[Piece]) -> None:
        self.transcript: Transcript | None = None
        self.pieces: Sequence[Piece] = prompt
        if isinstance(prompt, Prefix):
            self.transcript = prompt.transcript
            self.pieces = prompt.transcript.pieces
        self.count = len(prompt)
        self.match: Match | None = None


class Match:
    """Where a prompt's resident text ends and where it can resume.

    `node` ends after `pieces[:index]`. It resumes at `resume`, which ends after `pieces[:resume_index]`: the node
    that holds `best`, the deepest state on the path, or the root; without a state pool `node` itself.
    """

    __slots__ = ("best", "branches", "forks", "index", "node", "resume", "resume_index", "stale")

    def __init__(self, node: Node, index: int, resume: Node, resume_index: int) -> None:
        self.node = node
        self.index = index
        self.resume = resume
        self.resume_index = resume_index
        self.best: State | None = resume.states[-1] if resume.states else None
        self.stale = False
        self.branches: tuple[Node, ...] = ()  # see `weights`
        self.forks = -1


class Matcher:
    """Finds matches in one tree.

    Args:
        tree: the resident text.
        states: the state pool; None for a pure attention model.
    """

    def __init__(self, tree: RadixTree, states: StatePool | None) -> None:
        self._tree = tree
        self._states = states

    def find(self, sought: Sought) -> Match:
        """Match a prompt once; nothing is kept."""
        if sought.match is not None and not sought.match.stale:
            return sought.match
        return self._walk(sought, sought.match)

    def keep(self, sought: Sought) -> Match:
        """Match a prompt and keep the result with it until `drop`; a kept one that still holds costs nothing."""
        match = sought.match
        if match is not None:
            if not match.stale:
                return match
            self.drop(sought)
        match = self._walk(sought, match)
        sought.match = match
        walk: Node | None = match.node
        while walk is not None:
            if walk.watchers is None:
                walk.watchers = set()
            walk.watchers.add(match)
            if walk is match.resume:
                break
            walk = walk.parent
        return match

    def drop(self, sought: Sought) -> None:
        """Keep the match no longer."""
        match, sought.match = sought.match, None
        walk: Node | None = None if match is None else match.node
        while walk is not None and match is not None and walk.watchers and match in walk.watchers:
            walk.watchers.discard(match)
            walk = walk.parent

    def remember(self, sought: Sought, node: Node, index: int) -> None:
        """Note that `node` ends after the first `index` pieces, so that the conversation's next turn starts there."""
        if sought.transcript is not None:
            sought.transcript.cursors[self._tree] = (node, index)

    def touch(self, match: Match) -> None:
        """Mark a use as SGLang does: the state, and the text down to it; what lies deeper ages."""
        self._tree.touch(match.resume)
        if match.best is not None:
            match.best.stamp = match.resume.stamp

    def anew(self, sought: Sought) -> Match:
        """Match from the root, as if nothing were known: what every other way must agree with."""
        node, index = self._tree.descend(sought.pieces, stop=sought.count)
        return self._resume(node, index)

    def _walk(self, sought: Sought, known: Match | None = None) -> Match:
        node, index = self._tree.root, 0
        if known is not None:
            node, index = known.node, known.index
        elif sought.transcript is not None:
            node, index = sought.transcript.cursors.get(self._tree, (node, index))
        while (node.gone or index > sought.count) and node.parent is not None:
            index -= len(node.pieces)
            node = node.parent
        node, index = self._tree.descend(sought.pieces, node, index, sought.count)
        self.remember(sought, node, index)
        return self._resume(node, index)

    def _resume(self, node: Node, index: int) -> Match:
        """Look up the deepest state at or above `node`."""
        resume, resume_index = node, index
        while self._states is not None and not resume.states and resume.parent is not None:
            resume_index -= len(resume.pieces)
            resume = resume.parent
        return Match(node, index, resume, resume_index)
