"""How much KV an admission leaves for outputs that are not there yet, after SGLang 0.5.23's PrefillAdder.

Lives here: the clip, the share that running requests are expected to use (NewTokenRatioTracker). Must not: pools.
A request of fixed length (`ignore_eos`) keeps its whole remaining output free, up to the clip; one that may stop early
is expected to use a share of its `max_new_tokens` that falls with every decode step and is set anew when KV runs out.
"""

from __future__ import annotations

CLIP_TOKENS = 4096
"""Most output tokens kept free for one request (SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION)."""
PAGE_TOKENS = 1
"""Kept free besides for each request that is admitted: SGLang's allowance of one page."""
INITIAL_RATIO = 0.7
LEAST_RATIO = INITIAL_RATIO * 0.14
DECAY = (INITIAL_RATIO - LEAST_RATIO) / 600
"""By how much the share falls in a decode step."""
RETRACT_STEPS = 20
"""Decode steps for which a retraction makes room."""


class OutputShare:
    """The share of `max_new_tokens` that running requests of open length are expected to use: `ratio`."""

    def __init__(self) -> None:
        self.ratio = INITIAL_RATIO
        self._fresh = False

    def decay(self, steps: int) -> None:
        """Lower it for decode steps that are over; the one before which it was set does not count."""
        self.ratio = max(self.ratio - (steps - self._fresh) * DECAY, LEAST_RATIO)
        self._fresh = False

    def retracted(self, output_tokens: int, max_new_tokens: int, kept: int) -> None:
        """Estimate it anew from the `kept` requests: what they generated, of what they may."""
        self.ratio = min(1.0, (output_tokens + RETRACT_STEPS * kept) / (max_new_tokens + 1))
        self._fresh = True

    def reset(self) -> None:
        """Start again: the worker is idle."""
        self.ratio = INITIAL_RATIO
