"""The beginning that the prompts of one domain share, as pieces that a modelled cache can recognise.

In a replay the text of a shorter beginning is the start of a longer one's. Pieces match only whole, so each beginning
is cut where others end: at up to `CUTS` of the lengths that the domain has, the shortest always among them. Where a
domain has more lengths than that, two of them share up to the last cut before the shorter one's end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from agentbatch.sim.radix import Piece
from agentbatch.trace.workload import TraceTrajectory

CUTS = 8
"""Every cut makes every prompt of the domain a piece longer."""


class SharedPrefixes:
    """Gives out pieces: those of each domain's shared beginning, and fresh ones that nothing else has."""

    def __init__(self, workload: Sequence[TraceTrajectory]) -> None:
        lengths: dict[str, set[int]] = {}
        for one in workload:
            lengths.setdefault(one.domain, set()).add(one.system_tokens + one.tool_tokens)
        self._cuts = {domain: _chosen(sorted(found - {0})) for domain, found in lengths.items()}
        self._known: dict[tuple[str, str, int], Piece] = {}
        self._ids = count()

    def fresh(self, tokens: int) -> Piece:
        """Return a piece of `tokens` >= 1 that is like no other."""
        return next(self._ids), tokens

    def of(self, domain: str, role: str, tokens: int) -> list[Piece]:
        """Return the pieces of the first `tokens` that prompts of one domain and role share; none for 0."""
        return [self._piece(domain, role, start, end) for start, end in self._spans(domain, tokens)]

    def _spans(self, domain: str, tokens: int) -> Iterator[tuple[int, int]]:
        start = 0
        for cut in self._cuts[domain]:
            if cut > tokens:
                break
            yield start, cut
            start = cut
        if start < tokens:
            yield start, tokens

    def _piece(self, domain: str, role: str, start: int, end: int) -> Piece:
        name = domain, role, end
        piece = self._known.get(name)
        if piece is None:
            piece = self._known[name] = self.fresh(end - start)
        return piece


def _chosen(lengths: list[int]) -> list[int]:
    """Return at most `CUTS` of the ascending `lengths`, evenly by rank from the shortest."""
    if len(lengths) <= CUTS:
        return lengths
    return [lengths[rank * len(lengths) // CUTS] for rank in range(CUTS)]
