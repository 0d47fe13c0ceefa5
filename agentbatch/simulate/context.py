"""The prompts of one simulated context: they grow as `replay.conversation` grows them, in tokens instead of text."""

from __future__ import annotations

from agentbatch.sim.radix import Piece
from agentbatch.sim.transcript import Prefix, Transcript
from agentbatch.simulate.prefixes import SharedPrefixes


class Context:
    """Shared beginning, then in turn what was added to the prompt and the replies (spec §7).

    One transcript, added to and never rebuilt, so that a turn costs the same however long its context is.

    Args:
        prefixes: gives out pieces.
        domain, role: whose beginning is shared.
        shared_tokens: length of that beginning, >= 0.
    """

    __slots__ = (
        "_domain", "_prefixes", "_recorded_tokens", "_role", "_shared_tokens", "restarts", "tokens", "transcript",
    )  # fmt: skip

    def __init__(self, prefixes: SharedPrefixes, domain: str, role: str, shared_tokens: int) -> None:
        self._prefixes = prefixes
        self._domain = domain
        self._role = role
        self._shared_tokens = shared_tokens
        self._recorded_tokens = 0
        self.transcript = Transcript()
        self.tokens = 0
        """Of the transcript."""
        self.restarts = 0

    def grow_to(self, prompt_tokens: int) -> Prefix:
        """Make the next prompt `prompt_tokens` long, at least 1, and return it.

        A prompt shorter than what was recorded before it restarts the context: the shared beginning stays, the rest is
        fresh. One that is shorter only because a reply of no tokens became one of one token is as long as it has to be.
        """
        if self.tokens and prompt_tokens < self._recorded_tokens:
            self.tokens = 0
            self.restarts += 1
        wanted = max(1, prompt_tokens)
        if not self.tokens:
            self.tokens = min(self._shared_tokens, wanted - 1)  # the last prompt token is always the trajectory's own
            self.transcript = Transcript(self._prefixes.of(self._domain, self._role, self.tokens))
        if wanted > self.tokens:
            self.transcript.extend(self._prefixes.own(wanted - self.tokens))
            self.tokens = wanted
        self._recorded_tokens = prompt_tokens
        return self.transcript.upto()

    def add_reply(self, reply: Piece, recorded_tokens: int) -> None:
        """Append what was generated.

        Args:
            reply: the piece.
            recorded_tokens: output tokens of the recorded turn, for telling a restart.
        """
        self.transcript.extend([reply])
        self.tokens += reply[1]
        self._recorded_tokens += recorded_tokens
