"""All figures of one run, as one record (spec §8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from agentbatch.events import Event, Outcome
from agentbatch.trace import metrics
from agentbatch.trace.bottleneck import run_bottleneck
from agentbatch.trace.bound import lower_bound_s
from agentbatch.trace.curve import CompletionCurve
from agentbatch.trace.imbalance import Placement, output_imbalance, request_imbalance
from agentbatch.trace.ledger import Ledger
from agentbatch.trace.run import RunFile

DECIMALS = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class NoticeCount:
    """A notice and how often the run gave it."""

    kind: str
    message: str
    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """The figures of one run: seconds on the run's clock (trace seconds in a replay), except `wall_s`,
    `priority_s` and `loop_lag_…`.

    None stands for what cannot be known: no stream, no cached counts, one worker, nothing ran.
    """

    makespan_s: float | None
    """First admission until the last trajectory ended; until the last event where some never ended."""
    lower_bound_s: float | None
    tail_5_s: float | None
    tail_10_s: float | None
    completed: int
    failed: int
    cache_reuse: float | None
    input_tokens: int | None
    cached_tokens: int | None
    new_prefill_tokens: int | None
    output_tokens: int | None
    mean_in_flight: float | None
    beta: float | None
    gamma_out: float | None
    ttft_mean_s: float | None
    tpot_mean_s: float | None
    admission_wait_s: float | None
    """Mean per admitted trajectory."""
    environment_wait_s: float | None
    """Mean per environment job that got a slot."""
    environment_share: float | None
    wall_s: float | None
    """Wall seconds of the whole run; None for a run that was not closed in order, or simulated."""
    cancelled: int
    unfinished: int
    """Trajectories that never ended: the run was killed, or still runs."""
    turns: int
    """Completed turns."""
    jobs: int
    """Environment jobs that got a slot."""
    retries: int
    timeouts: int
    """Turns, jobs and trajectories that a time-out ended."""
    timed_out_trajectories: int
    """Trajectories with such a time-out: their scores may have moved."""
    overruns: int
    """Jobs that ran on after they were told to stop."""
    inference_in_environment: int
    """Turns made while their task held an environment slot."""
    output_tokens_per_s: float | None
    """Output tokens / makespan."""
    loop_lag_mean_s: float | None
    loop_lag_worst_s: float | None
    """Wall seconds by which the harness's event loop woke sleepers late; None where not measured."""
    priority_s: float | None
    """Wall seconds spent computing scheduling priorities; None where not measured."""
    bottleneck: str | None
    """What bound over the whole run: "cs", "ce:<resource>", "inference", "harness" or "trajectories" (no limit did)."""
    bottleneck_sentence: str | None
    """The same for people."""
    time_shares: Mapping[str, float] | None
    """Of active trajectory time, by state, adding up to 1: where it went."""
    slot_gain: Mapping[str, float] | None
    """Throughput that one more slot would have added at most, relative, by "cs" and "ce:<resource>"."""
    notices: tuple[NoticeCount, ...]
    torn_tail: bool
    """The record's last line was not whole and is left out."""

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as JSON has them, floats to six decimals."""
        record = asdict(self)
        record["notices"] = list(record["notices"])
        return {key: _rounded(value) for key, value in record.items()}


def _rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _rounded(one) for key, one in value.items()}
    return round(value, DECIMALS) if isinstance(value, float) else value


def summarize(run: RunFile | Iterable[Event]) -> Summary:
    """Sum up a run from its file or its events, which may come in any order; a run that was killed sums up, too."""
    torn = run.torn if isinstance(run, RunFile) else None
    ledger = Ledger.of(run.events if isinstance(run, RunFile) else run)
    start_s, end_s = ledger.first_admission_s, ledger.end_s
    makespan_s = None if start_s is None or end_s is None else end_s - start_s
    curve = CompletionCurve.of(ledger)
    placement = Placement.of(ledger)
    tokens = metrics.Tokens.of(ledger)
    late = metrics.timed_out(ledger)
    binds = run_bottleneck(ledger)
    known = binds.kind != "unknown"
    ended: Counter[Outcome] = Counter(event.outcome for event in ledger.ended.values())
    unadmitted: Counter[Outcome] = Counter(event.outcome for event in ledger.never_admitted.values())
    return Summary(
        makespan_s=makespan_s,
        lower_bound_s=lower_bound_s(ledger),
        tail_5_s=curve.tail(5),
        tail_10_s=curve.tail(10),
        completed=ended["ok"],
        failed=ended["failed"] + unadmitted["failed"],
        cache_reuse=tokens.cache_reuse,
        input_tokens=tokens.input,
        cached_tokens=tokens.cached,
        new_prefill_tokens=tokens.new_prefill,
        output_tokens=tokens.output,
        mean_in_flight=metrics.mean_in_flight(ledger),
        beta=request_imbalance(placement.turns, placement.workers),
        gamma_out=output_imbalance(placement.turns, placement.workers),
        ttft_mean_s=metrics.ttft_mean_s(ledger),
        tpot_mean_s=metrics.tpot_mean_s(ledger),
        admission_wait_s=metrics.admission_wait_s(ledger),
        environment_wait_s=metrics.environment_wait_s(ledger),
        environment_share=metrics.environment_share(ledger),
        wall_s=None if ledger.closed is None else ledger.closed.wall_s,
        cancelled=ended["cancelled"] + unadmitted["cancelled"],
        unfinished=ledger.unfinished,
        turns=sum(turn.outcome == "ok" for turn in ledger.turns),
        jobs=sum(job.granted_s is not None for job in ledger.jobs),
        retries=sum(max(0, turn.attempts - 1) for turn in ledger.turns),
        timeouts=len(late),
        timed_out_trajectories=len(set(late)),
        overruns=sum(job.outcome == "overrun" for job in ledger.jobs),
        inference_in_environment=sum(turn.in_environment for turn in ledger.turns),
        output_tokens_per_s=(
            None if makespan_s is None or tokens.output is None else metrics.ratio(tokens.output, makespan_s)
        ),
        loop_lag_mean_s=None if ledger.closed is None else ledger.closed.loop_lag_mean_s,
        loop_lag_worst_s=None if ledger.closed is None else ledger.closed.loop_lag_worst_s,
        priority_s=None if ledger.closed is None else ledger.closed.priority_s,
        bottleneck=binds.name if known else None,
        bottleneck_sentence=binds.sentence if known else None,
        time_shares=dict(binds.shares) or None,
        slot_gain=dict(binds.gain) or None,
        notices=(*_recorded_notices(ledger), *_own_notices(ledger, placement, tokens, torn)),
        torn_tail=torn is not None,
    )


def _recorded_notices(ledger: Ledger) -> list[NoticeCount]:
    ordered = sorted(ledger.notices, key=lambda notice: (notice.at_s, notice.kind, notice.message))
    counts = Counter((notice.kind, notice.message) for notice in ordered)
    return [NoticeCount(kind=kind, message=message, count=count) for (kind, message), count in counts.items()]


def _own_notices(
    ledger: Ledger, placement: Placement, tokens: metrics.Tokens, torn: str | None
) -> Iterable[NoticeCount]:
    """Say what the figures cannot say by themselves: what is missing from them."""
    found = {
        "unfinished": (
            ledger.unfinished,
            f"{ledger.unfinished} of {ledger.trajectories} trajectories never ended: the makespan is a lower limit, "
            "the tails are unknown",
        ),
        "not-closed": (int(ledger.closed is None and ledger.started is not None), "the run was not closed in order"),
        "torn": (int(torn is not None), f"the record ends in the middle of an event: {torn}"),
        "duplicates": (
            len(ledger.duplicates), f"{len(ledger.duplicates)} events came twice and are counted once"
        ),
        "usage": (
            tokens.unreported,
            f"{tokens.unreported} completed turns came without token counts: the token figures leave them out",
        ),
        "workers": (
            placement.unknown if placement.workers > 1 else 0,
            f"{placement.unknown} completed turns name no worker of the run: beta and gamma_out leave them out",
        ),
    }  # fmt: skip
    return [NoticeCount(kind=kind, message=text, count=count) for kind, (count, text) in found.items() if count]
