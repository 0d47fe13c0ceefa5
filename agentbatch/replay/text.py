"""Makes text of a wanted number of tokens: seeded, so that every run of a replay sends the same bytes.

How many characters make a token depends on the server's tokenizer; `Calibration` is measured once before a timed run,
and `conversation` corrects what is left from the usage that each reply reports.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache

# Common short words, one token each in the byte-pair vocabularies in use; a byte-level tokenizer sees their letters.
VOCABULARY = (
    "the of and to in is you that it he was for on are as with his they at be this have from or one had by word but "
    "not what all were we when your can said there use an each which she do how their if will up other about out many "
    "then them these so some her would make like him into time has look two more write go see number no way could "
    "people my than first water been call who oil its now find long down day did get come made may part"
)

PHRASES, PHRASE_WORDS = 4096, 4
"""Text is put together from phrases made once: drawing every word by itself took a tenth of a replay's client time."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """How this server counts: tokens a character of our text, a message's own, and a conversation's own."""

    tokens_per_char: float = 1.0
    message_tokens: float = 0.0
    base_tokens: float = 0.0

    def chars(self, tokens: float) -> int:
        """Return how many characters make `tokens` tokens; at least 1."""
        return max(1, round(tokens / self.tokens_per_char))


@cache
def phrases() -> tuple[str, ...]:
    """Return the phrases that all text is made of, each ending in a blank."""
    source = random.Random("phrases")  # noqa: S311 - reproducible text, not cryptography
    words = VOCABULARY.split()
    return tuple(" ".join(source.choices(words, k=PHRASE_WORDS)) + " " for _ in range(PHRASES))


def text(seed: str, length: int) -> str:
    """Return `length` characters, a function of `seed` alone; a longer text of one seed extends a shorter one."""
    source = random.Random(seed)  # noqa: S311 - reproducible text, not cryptography
    known = phrases()
    pieces: list[str] = []
    have = 0
    while have < length:
        piece = "".join(source.choices(known, k=32))
        pieces.append(piece)
        have += len(piece)
    return "".join(pieces)[:length]
