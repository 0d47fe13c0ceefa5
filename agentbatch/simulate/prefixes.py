"""The beginning that the prompts of one domain share, as pieces that a modelled cache can recognise.

In a replay the text of a shorter beginning is the start of a longer one's, and what a cache keeps of it may end
anywhere, at a prefill chunk's end for one. Pieces match only whole, so a beginning comes in blocks of the states' grid.
"""

from __future__ import annotations

from itertools import count

from agentbatch.sim.radix import Piece
from agentbatch.sim.states import GRID_TOKENS


class SharedPrefixes:
    """Gives out pieces: those of each domain's shared beginning, and fresh ones that nothing else has."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, int, int], Piece] = {}
        self._ids = count()

    def fresh(self, tokens: int) -> Piece:
        """Return a piece of `tokens` >= 1 that is like no other."""
        return next(self._ids), tokens

    def own(self, tokens: int) -> list[Piece]:
        """Return pieces of `tokens` >= 1, like no other, that may follow a shared beginning.

        The first is a block by itself: a state left inside the text is modelled at the end of the last whole piece
        before it, which must not be where the shared beginning ends, or everybody could go on from it.
        """
        if tokens <= GRID_TOKENS:
            return [self.fresh(tokens)]
        return [self.fresh(GRID_TOKENS), self.fresh(tokens - GRID_TOKENS)]

    def of(self, domain: str, role: str, tokens: int) -> list[Piece]:
        """Return the pieces of the first `tokens` that prompts of one domain and role share; none for 0."""
        starts = range(0, tokens, GRID_TOKENS)
        return [self._piece(domain, role, start, min(start + GRID_TOKENS, tokens)) for start in starts]

    def _piece(self, domain: str, role: str, start: int, end: int) -> Piece:
        name = domain, role, start, end
        piece = self._known.get(name)
        if piece is None:
            piece = self._known[name] = self.fresh(end - start)
        return piece
