"""How close a replay came to the recorded lengths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a simulation counts lengths, too, and needs none of the runtime
    from agentbatch.runtime.hub import Hub

PROMPT_TOLERANCE = 0.02
"""Prompts may differ by this share over a whole run before a person is told: tokenizers round."""


@dataclass(kw_only=True, slots=True)
class Lengths:
    """Tokens over all completed turns, as recorded and as replayed."""

    recorded_prompt: int = 0
    sent_prompt: int = 0
    recorded_output: int = 0
    generated: int = 0
    restarts: int = 0
    """Contexts that began anew because a recorded prompt was shorter than what stood before."""

    def add(self, *, recorded: tuple[int, int], replayed: tuple[int, int]) -> None:
        """Count one turn's (prompt, output) tokens."""
        self.recorded_prompt += recorded[0]
        self.recorded_output += recorded[1]
        self.sent_prompt += replayed[0]
        self.generated += replayed[1]

    def difference(self) -> tuple[str, dict[str, int]] | None:
        """Return in words and in figures where the lengths are not the recorded ones; None where they are."""
        prompt, output = self.sent_prompt - self.recorded_prompt, self.generated - self.recorded_output
        if output == 0 and abs(prompt) <= PROMPT_TOLERANCE * self.recorded_prompt:
            return None
        message = (
            f"recorded {self.recorded_prompt:,} prompt and {self.recorded_output:,} output tokens, replayed "
            f"{self.sent_prompt:,} and {self.generated:,}"
        )
        return message, {"prompt_tokens_difference": prompt, "output_tokens_difference": output}

    def report(self, hub: Hub) -> None:
        """Say where the replay could not keep to the recorded lengths."""
        if (difference := self.difference()) is not None:
            message, details = difference
            hub.notice("lengths", message, details=details)
