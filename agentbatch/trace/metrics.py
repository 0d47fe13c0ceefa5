"""Figures of one run that need nothing but its turns and jobs (spec §8).

Pure functions of a ledger. Sums are exact (`fsum`), so the order of the events cannot change a digit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from agentbatch.trace.ledger import Ledger


def mean(values: Iterable[float]) -> float | None:
    """Return the mean of `values`, None where there are none."""
    numbers = list(values)
    return math.fsum(numbers) / len(numbers) if numbers else None


def ratio(part: float, whole: float) -> float | None:
    """Return `part` / `whole`, None where `whole` is 0."""
    return part / whole if whole else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Tokens:
    """Token counts as the server reported them, summed over turns; None where it never did."""

    input: int | None
    """Prompt tokens, cached ones included."""
    cached: int | None
    output: int | None
    unreported: int
    """Completed turns that came back without token counts."""

    @classmethod
    def of(cls, ledger: Ledger) -> Tokens:
        """Add up a run's tokens; a turn without a cached count had none where other turns have one."""
        counted = [turn for turn in ledger.turns if turn.prompt_tokens is not None]
        output = [turn.output_tokens for turn in ledger.turns if turn.output_tokens is not None]
        reports_cache = any(turn.cached_tokens is not None for turn in counted)
        return cls(
            input=sum(turn.prompt_tokens or 0 for turn in counted) if counted or not ledger.turns else None,
            cached=sum(turn.cached_tokens or 0 for turn in counted) if reports_cache else None,
            output=sum(output) if output or not ledger.turns else None,
            unreported=sum(turn.outcome == "ok" and turn.prompt_tokens is None for turn in ledger.turns),
        )

    @property
    def new_prefill(self) -> int | None:
        """Prompt tokens that the server had to compute; None where it reports no cached counts."""
        return None if self.input is None or self.cached is None else self.input - self.cached

    @property
    def cache_reuse(self) -> float | None:
        """H: cached share of the prompt tokens, 0 to 1; None where the server reports no cached counts."""
        return None if self.input is None or self.cached is None else ratio(self.cached, self.input)


def mean_in_flight(ledger: Ledger) -> float | None:
    """Return the inference requests in flight, averaged from the first admission to the end of the run.

    A request is in flight from client launch to its last byte, retries and back-off included, however it ended.
    """
    start_s, end_s = ledger.first_admission_s, ledger.end_s
    if start_s is None or end_s is None:
        return None
    inside = (min(turn.ended_s, end_s) - max(turn.started_s, start_s) for turn in ledger.turns)
    return ratio(math.fsum(span for span in inside if span > 0), end_s - start_s)


def ttft_mean_s(ledger: Ledger) -> float | None:
    """Return the mean seconds from client launch to the first byte, over streamed turns that had one."""
    return mean(
        turn.first_byte_s - turn.started_s for turn in ledger.turns if turn.streamed and turn.first_byte_s is not None
    )


def tpot_mean_s(ledger: Ledger) -> float | None:
    """Return the mean (last byte − first byte) / (tokens − 1), seconds, over streamed turns of at least two tokens."""
    return mean(
        (turn.ended_s - turn.first_byte_s) / (turn.output_tokens - 1)
        for turn in ledger.turns
        if turn.streamed and turn.first_byte_s is not None and turn.output_tokens is not None and turn.output_tokens > 1
    )


def admission_wait_s(ledger: Ledger) -> float | None:
    """Return the mean seconds that an admitted trajectory had waited for its slot."""
    return mean(event.at_s - event.submitted_s for event in ledger.admitted.values())


def environment_wait_s(ledger: Ledger) -> float | None:
    """Return the mean seconds that an environment job waited for its slot; jobs that never got one are left out."""
    return mean(job.granted_s - job.asked_s for job in ledger.jobs if job.granted_s is not None)


def environment_share(ledger: Ledger) -> float | None:
    """Return environment seconds / (environment + inference seconds), 0 to 1: what part of the work it was.

    Environment seconds are those a slot was held, inference seconds those from client launch to the last byte; waiting
    for a slot is neither.
    """
    held_s = math.fsum(job.ended_s - job.granted_s for job in ledger.jobs if job.granted_s is not None)
    inference_s = math.fsum(turn.ended_s - turn.started_s for turn in ledger.turns)
    return ratio(held_s, held_s + inference_s)


def timed_out(ledger: Ledger) -> list[str]:
    """Return the label behind every turn, job and trajectory that a time-out ended; a child counts for its parent."""
    labels = [span.label for spans in (ledger.turns, ledger.jobs) for span in spans if span.timed_out]
    labels += [event.label for event in ledger.ended.values() if event.timed_out]
    return [ledger.root(label) for label in labels]
