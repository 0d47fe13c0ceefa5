"""How long one engine step takes, and whole stretches of steps in closed form.

Lives here: step durations in seconds and their sums and inverses. Must not: a clock, queues, cache state.

A decode step of `batch` requests costs `base(batch) + context_s · Σcontext`: `base` is piecewise linear
(weights read once plus work per request; the published tables bend because more experts are touched), the
second term is the KV read. A prefill step costs `prefill_step_s` (weights), plus a linear and a quadratic
(attention) term. Figures and their sources are in `presets`.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from agentbatch.errors import UsageError


@dataclass(frozen=True, kw_only=True, slots=True)
class StepCost:
    """Seconds per engine step of one worker.

    Args:
        decode_base: `(batch, seconds)` points of a decode step at no context, batch strictly increasing
            from 1 and seconds never falling; linear between them, the last slope goes on. One point means a
            constant.
        context_s: seconds per token of context and decode step, >= 0.
        prefill_step_s: seconds of a prefill step before its first token, >= 0.
        prefill_token_s: seconds per new token, > 0.
        attention_s: seconds per pair of new token and token before it, >= 0.
        match_s: seconds that a scheduling pass takes to look one waiting request up in the prefix cache, >= 0; the
            engine waits for it where scheduling does not overlap with its steps.

    Raises:
        UsageError: a coefficient outside its range.
    """

    decode_base: tuple[tuple[int, float], ...]
    context_s: float
    prefill_step_s: float
    prefill_token_s: float
    attention_s: float
    match_s: float = 0.0

    def __post_init__(self) -> None:
        points = self.decode_base
        rising = all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(points))
        if not points or points[0][0] != 1 or points[0][1] <= 0 or not rising:
            raise UsageError("decode_base needs points (batch, seconds) that start at batch 1 and rise; got "
                             f"{points!r}")
        rest = (self.context_s, self.prefill_step_s, self.attention_s, self.match_s)
        if min(rest) < 0 or self.prefill_token_s <= 0 or not all(map(math.isfinite, rest)):
            raise UsageError("step cost coefficients must be finite and >= 0, prefill_token_s > 0")

    def decode_base_s(self, batch: int) -> float:
        """Return seconds of a decode step of `batch` >= 1 requests without any context."""
        points = self.decode_base
        if len(points) == 1:
            return points[0][1]
        right = min(max(bisect_left(points, (batch, -math.inf)), 1), len(points) - 1)
        (x0, y0), (x1, y1) = points[right - 1], points[right]
        return y0 + (y1 - y0) * (batch - x0) / (x1 - x0)

    def decode_s(self, batch: int, context_tokens: int, steps: int = 1) -> float:
        """Return seconds of `steps` decode steps in a row.

        Args:
            batch: requests decoding, >= 1; the same in every step.
            context_tokens: Σcontext in the first step; every step adds `batch` tokens to it.
            steps: >= 0.
        """
        read = steps * context_tokens + batch * (steps * (steps - 1) // 2)
        return steps * self.decode_base_s(batch) + self.context_s * read

    def decode_steps_by(self, batch: int, context_tokens: int, elapsed_s: float) -> int:
        """Return how many steps of such a stretch have ended `elapsed_s` after its start: `decode_s` inverted."""
        if elapsed_s <= 0:
            return 0
        square = self.context_s * batch / 2
        linear = self.decode_base_s(batch) + self.context_s * context_tokens - square
        # The stable root: linear² + 4·square·elapsed never cancels.
        steps = int(2 * elapsed_s / (linear + math.sqrt(linear * linear + 4 * square * elapsed_s)))
        while self.decode_s(batch, context_tokens, steps + 1) <= elapsed_s:
            steps += 1
        while steps and self.decode_s(batch, context_tokens, steps) > elapsed_s:
            steps -= 1
        return steps

    def prefill_s(self, parts: Iterable[tuple[int, int]]) -> float:
        """Return seconds of one prefill step over `(new_tokens, tokens_before)` of each request in it."""
        return self.prefill_step_s + sum(self._prefill_work_s(new, before) for new, before in parts)

    def fastest_turn_s(
        self, new_tokens: int, cached_tokens: int, output_tokens: int, *, chunk_tokens: int
    ) -> float:
        """Return seconds of a turn alone on an idle worker; the first output token comes out of the
        prefill.

        Args:
            new_tokens: prompt tokens to compute, >= 1.
            cached_tokens: prompt tokens reused, >= 0.
            output_tokens: >= 1.
            chunk_tokens: prefill budget per step, >= 1.
        """
        steps = -(-new_tokens // chunk_tokens)
        prefill_s = steps * self.prefill_step_s + self._prefill_work_s(new_tokens, cached_tokens)
        return prefill_s + self.decode_s(1, new_tokens + cached_tokens + 1, output_tokens - 1)

    def least_work_s(
        self, new_tokens: int, cached_tokens: int, output_tokens: int, *, max_batch: int, chunk_tokens: int
    ) -> float:
        """Return engine seconds that no schedule can undercut: this turn's share of steps shared at their
        best.

        A prefill step serves at most `chunk_tokens`, so its fixed part costs each token at least
        1/chunk_tokens of it; a decode step of b requests costs each base(b)/b, least at a corner of `base`
        or at `max_batch`.

        Args:
            new_tokens, cached_tokens, output_tokens, chunk_tokens: as for `fastest_turn_s`.
            max_batch: most requests that decode together, >= 1.
        """
        prefill_s = self._prefill_work_s(new_tokens, cached_tokens)
        prefill_s += self.prefill_step_s * new_tokens / chunk_tokens
        corners = {batch for batch, _ in self.decode_base if batch < max_batch} | {max_batch}
        share_s = min(self.decode_base_s(batch) / batch for batch in corners)
        steps = output_tokens - 1
        first = new_tokens + cached_tokens + 1
        return prefill_s + steps * share_s + self.context_s * (steps * first + steps * (steps - 1) // 2)

    def _prefill_work_s(self, new: int, before: int) -> float:
        return self.prefill_token_s * new + self.attention_s * new * (before + new / 2)
