"""The messages of one replayed context: shared prefix, generated replies, answers of recorded length (spec §7)."""

from __future__ import annotations

from typing import Any

from agentbatch.replay.text import Calibration, text

Message = dict[str, Any]


class Conversation:
    """Grows as recorded: initial message, then in turn the replies of this replay and environment answers.

    A prompt is exactly as long as recorded wherever the server counts our text exactly and the recorded step (this
    prompt − the last one − its output) has room for what two messages cost besides their text and one token more;
    after a smaller step the next prompt is right again, because every prompt is grown to its own recorded length.

    Args:
        name: seed of its own text; unique per trajectory and context.
        domain: seed of the prefix it shares with its domain.
        shared_tokens: length of that prefix, tokens; 0 where the trace gives none.
        calibration: how the server counts.
        seed: the replay's seed.
    """

    def __init__(self, name: str, domain: str, shared_tokens: int, calibration: Calibration, seed: int) -> None:
        self._name = f"{seed}/{name}"
        self._domain = f"{seed}/{domain}"
        self._shared_tokens = shared_tokens
        self._calibration = calibration
        self._pieces = 0
        self._recorded_tokens = 0
        self._tokens = 0.0
        self._prefix: tuple[int, str] = (0, "")
        self.messages: list[Message] = []
        self.restarts = 0

    def grow_to(self, prompt_tokens: int) -> list[Message]:
        """Add what makes the next prompt `prompt_tokens` long and return all messages.

        A prompt shorter than what stood before (compaction, a branch) restarts the context: the shared prefix stays,
        the rest is fresh text.
        """
        if self.messages and prompt_tokens < self._recorded_tokens:
            self.messages = []
            self.restarts += 1
        if not self.messages:
            self._start(prompt_tokens)
        else:
            self._add("user", prompt_tokens - self._tokens)
        self._recorded_tokens = prompt_tokens
        return self.messages

    def _start(self, prompt_tokens: int) -> None:
        count = self._calibration
        self._tokens = count.base_tokens
        shared = min(self._shared_tokens, prompt_tokens - 2 * count.message_tokens - count.base_tokens)
        if self._shared_tokens and shared > count.message_tokens:
            self._add("system", shared - count.base_tokens)
        self._add("user", prompt_tokens - self._tokens)

    def _add(self, role: str, tokens: float) -> None:
        """Append a message that adds `tokens` to the prompt, its overhead included; never less than one character."""
        length = self._calibration.chars(tokens - self._calibration.message_tokens)
        if role == "system":
            content = self._shared(length)
        else:
            self._pieces += 1
            content = text(f"{self._name}/{self._pieces}", length)
        self.messages.append({"role": role, "content": content})
        self._tokens += self._calibration.message_tokens + length * self._calibration.tokens_per_char

    def _shared(self, length: int) -> str:
        if self._prefix[0] != length:
            self._prefix = (length, text(self._domain, length))
        return self._prefix[1]

    def add_reply(
        self, content: str, prompt_tokens: int | None, output_tokens: int | None, recorded_output: int
    ) -> None:
        """Append what the server generated; its own counts, where it gave them, correct ours.

        Args:
            content: the reply's text.
            prompt_tokens: of the call, as the server reported; None keeps our estimate.
            output_tokens: likewise.
            recorded_output: output tokens of the recorded turn, for telling a restart.
        """
        self.messages.append({"role": "assistant", "content": content})
        if prompt_tokens is not None:
            self._tokens = prompt_tokens
        self._tokens += recorded_output if output_tokens is None else output_tokens
        self._tokens += self._calibration.message_tokens  # in the next prompt the reply is a message like any other
        self._recorded_tokens += recorded_output
