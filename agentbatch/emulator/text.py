"""Text as the emulated model sees it: one token per UTF-8 byte, reuse in blocks of 64.

Lives here: blocks, seeds, generated text. Everything is a function of the bytes alone: never of time,
worker, policy or label, so that results do not depend on how a batch is scheduled.
"""

from __future__ import annotations

import hashlib

from agentbatch.sim.radix import Piece
from agentbatch.sim.states import GRID_TOKENS

_LETTERS = b"etaoinshrdlcumwfgypbvk"
_ALPHABET = (b" " * 40 + _LETTERS * 10)[:256]  # a byte in six is a blank, so that it reads as words

SHORTEST_REPLY_TOKENS = 16
LONGEST_REPLY_TOKENS = 512
"""Range of a seeded reply's length, where the request does not fix it."""


def encode(text: str) -> bytes:
    """Return the tokens of `text`; lone surrogates, which JSON can carry, count three bytes each."""
    return text.encode("utf-8", "surrogatepass")


def blocks(text: bytes) -> list[Piece]:
    """Cut `text` into pieces of 64 tokens; an incomplete last block is never reused and left out."""
    starts = range(0, len(text) - GRID_TOKENS + 1, GRID_TOKENS)
    return [(text[start:start + GRID_TOKENS], GRID_TOKENS) for start in starts]


def seed_of(prompt: bytes) -> bytes:
    """Return 32 bytes that stand for `prompt` in everything drawn for it."""
    return hashlib.blake2b(prompt, digest_size=32).digest()


def reply_tokens(seed: bytes) -> int:
    """Return the length at which a reply ends on its own, in tokens."""
    span = LONGEST_REPLY_TOKENS - SHORTEST_REPLY_TOKENS + 1
    return SHORTEST_REPLY_TOKENS + int.from_bytes(seed[:8], "little") % span


def generate(seed: bytes, tokens: int) -> bytes:
    """Return `tokens` bytes of ASCII words; no blank at either end, so that no harness strips one."""
    text = bytearray(hashlib.shake_128(seed).digest(tokens).translate(_ALPHABET))
    for place in (0, -1):
        if text[place] == 0x20:
            text[place] = 0x61
    return bytes(text)


def whole_characters(text: bytes, end: int) -> int:
    """Return the largest cut <= `end` that splits no UTF-8 character of `text`."""
    while 0 < end < len(text) and text[end] & 0xC0 == 0x80:
        end -= 1
    return end
