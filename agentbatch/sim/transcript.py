"""The growing text of one conversation, shared by the requests of all its turns.

A prompt of turn 80 holds turn 79's and two pieces more. Given as a slice of a transcript, a request costs only what is
new in it: its tokens are a difference of two sums, and a worker goes on where it left the conversation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import overload

from agentbatch.errors import UsageError
from agentbatch.sim.radix import Node, Piece


class Transcript:
    """Pieces of one conversation; they are only ever added."""

    __slots__ = ("_ends", "cursors", "pieces")

    def __init__(self, pieces: Iterable[Piece] = ()) -> None:
        self.pieces: list[Piece] = []
        self._ends = [0]
        self.cursors: dict[object, tuple[Node, int]] = {}  # by tree: a node that ends after pieces[:index]
        self.extend(pieces)

    def extend(self, pieces: Iterable[Piece]) -> None:
        """Append `pieces`.

        Raises:
            UsageError: a piece without tokens.
        """
        for piece in pieces:
            if piece[1] < 1:
                raise UsageError(f"piece {piece!r} has no tokens: leave it out")
            self.pieces.append(piece)
            self._ends.append(self._ends[-1] + piece[1])

    def upto(self, count: int | None = None) -> Prefix:
        """Return the first `count` pieces, all there are now by default; later growth does not change it."""
        return Prefix(self, len(self.pieces) if count is None else count)

    def tokens(self, count: int) -> int:
        """Return the tokens of the first `count` pieces."""
        return self._ends[count]

    def __repr__(self) -> str:
        return f"<Transcript pieces={len(self.pieces)} tokens={self._ends[-1]}>"


class Prefix(Sequence[Piece]):
    """The first `count` pieces of a transcript."""

    __slots__ = ("length", "tokens", "transcript")

    def __init__(self, transcript: Transcript, count: int) -> None:
        if not 0 <= count <= len(transcript.pieces):
            raise UsageError(f"a transcript of {len(transcript.pieces)} pieces has no first {count}")
        self.transcript = transcript
        self.length = count
        self.tokens = transcript.tokens(count)

    def __len__(self) -> int:
        return self.length

    @overload
    def __getitem__(self, place: int) -> Piece: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Piece]: ...
    def __getitem__(self, place: int | slice) -> Piece | Sequence[Piece]:
        return self.transcript.pieces[: self.length][place]

    def __repr__(self) -> str:
        return f"<Prefix pieces={self.length} tokens={self.tokens}>"
