"""How long each task took before, by its key: what "longest-first" admission goes by; not in the paper.

Lives here: reading that from a run's record or from a trace, and blurring it. What is made of it is `policy/admission`.

Seconds are those a trajectory is active, without its waits for environment slots, which say more about the limits of
that run than about the task. Inference is as long as it took then, under that run's load: only the order counts.
"""

from __future__ import annotations

import math
import os
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from agentbatch.errors import TraceError, UsageError
from agentbatch.policy.admission import median
from agentbatch.trace.bound import covered_s
from agentbatch.trace.ledger import Ledger
from agentbatch.trace.lines import first_line, parse_object
from agentbatch.trace.run import read_run
from agentbatch.trace.scaling import check_scale, scale_environment
from agentbatch.trace.workload import TraceTrajectory, cap, read_workload

OUTPUT_TOKEN_S = 0.02
"""What an output token is taken to cost in a trace that times no turn at all: an assumption, 50 tokens a second."""

MOST_SIGMA = 5.0


def read_profile(
    path: str | os.PathLike[str],
    *,
    env_cap_s: float | None = None,
    user_cap_s: float | None = None,
    env_scale: float = 1.0,
) -> dict[str, float]:
    """Read how long each task took, seconds by task key, from the record of a run or from a trace.

    A run file: from admission to the end, without time in which it only waited for environment slots; children count.
    A trajectory that failed, was cancelled or had not ended when the run was killed took at least what it took: it
    stands for that or for the median of those that completed, whichever is longer. Of several trajectories of one key
    the completed ones count, at their mean. Those never admitted are left out.

    A trace, by trajectory id: inference, environment stages and a person's waits before a next turn, added up. A turn
    without `infer_s` is taken at the file's own seconds per output token, or `OUTPUT_TOKEN_S` where no turn has any.

    Args:
        path: the file.
        env_cap_s: no environment stage counts for more, seconds >= 0; as the batch to be run is capped.
        user_cap_s: no person's wait counts for more; in a run file they are not told apart, and stay.
        env_scale: environment stages count so many times, after the cap, >= 0; as the batch to be run is scaled.

    Raises:
        TraceError: the file does not read, or holds no trajectory that says how long its task takes.
        UsageError: a cap or the scale is negative or not a number.
    """
    first = first_line(path)
    if first is None:
        raise TraceError(f"{os.fspath(path)} is empty: a profile is the record of a run, or a trace")
    if "event" in parse_object(path, first):
        seconds = _of_run(path, env_cap_s, env_scale)
    else:
        capped = [cap(one, env_cap_s=env_cap_s, user_cap_s=user_cap_s) for one in read_workload(path)]
        seconds = profile_of([scale_environment(one, env_scale) for one in capped])
    if not any(seconds.values()):
        raise TraceError(
            f"{os.fspath(path)} is no profile: no trajectory in it "
            f"{'took any time' if seconds else 'completed'}, so it does not say which of them are long"
        )
    return seconds


def noisy(profile: Mapping[str, float], sigma: float, seed: int | str) -> dict[str, float]:
    """Return the profile with each entry times a log-normal factor of median 1, independent of one another.

    Args:
        profile: seconds by task key.
        sigma: standard deviation of the factor's logarithm, 0 to 5; 0 changes nothing, 1 is off by e either way.
        seed: of the factors, which depend on it and on the sorted place of each key alone.

    Raises:
        UsageError: sigma is out of range.
    """
    if not 0.0 <= sigma <= MOST_SIGMA:
        raise UsageError(f"the noise of a profile must be 0 to {MOST_SIGMA:g}, not {sigma!r}")
    source = random.Random(f"profile/{seed}")  # noqa: S311 - reproducible
    factors = {key: math.exp(sigma * source.gauss(0.0, 1.0)) for key in sorted(profile)}
    return {key: seconds * factors[key] for key, seconds in profile.items()}


def profile_of(workload: Sequence[TraceTrajectory]) -> dict[str, float]:
    """Return how long each trajectory takes, seconds by id; as `read_profile` tells it of a trace."""
    timed = [turn for one in workload for turn in one.turns if turn.infer_s is not None]
    tokens = sum(turn.output_tokens for turn in timed)
    token_s = math.fsum(turn.infer_s or 0.0 for turn in timed) / tokens if tokens else OUTPUT_TOKEN_S

    def parts(one: TraceTrajectory) -> Iterator[float]:
        yield one.environment_s
        for turn in one.turns:
            yield turn.output_tokens * token_s if turn.infer_s is None else turn.infer_s
        for turn in one.turns[:-1]:
            yield turn.user_s or 0.0  # the last one's delays nothing

    return {one.id: math.fsum(parts(one)) for one in workload}


@dataclass(slots=True)
class _Spans:
    """What one trajectory and its children did, (start, end) in seconds; and what a cap takes off."""

    busy: list[tuple[float, float]] = field(default_factory=list)
    waiting: list[tuple[float, float]] = field(default_factory=list)
    excess_s: list[float] = field(default_factory=list)
    """Below 0 where environment stages are scaled up."""

    @property
    def off_s(self) -> float:
        """Seconds in which it only waited for environment slots, and those above the cap."""
        return covered_s([*self.busy, *self.waiting]) - covered_s(self.busy) + math.fsum(self.excess_s)


def _of_run(path: str | os.PathLike[str], env_cap_s: float | None, env_scale: float) -> dict[str, float]:
    if env_cap_s is not None and not env_cap_s >= 0:
        raise UsageError(f"env_cap_s must be 0 or more seconds, not {env_cap_s!r}")
    check_scale(env_scale)
    ledger = Ledger.of(read_run(path).events)
    spans: defaultdict[str, _Spans] = defaultdict(_Spans)
    for turn in ledger.turns:
        spans[ledger.root(turn.label)].busy.append((turn.started_s, turn.ended_s))
    for job in ledger.jobs:
        mine = spans[ledger.root(job.label)]
        mine.waiting.append((job.asked_s, job.ended_s if job.granted_s is None else job.granted_s))
        if job.granted_s is not None:
            mine.busy.append((job.granted_s, job.ended_s))
            held_s = job.ended_s - job.granted_s
            counted_s = env_scale * (held_s if env_cap_s is None else min(held_s, env_cap_s))
            mine.excess_s.append(held_s - counted_s)
    whole: defaultdict[str, list[float]] = defaultdict(list)
    at_least: defaultdict[str, list[float]] = defaultdict(list)
    for label, admitted in ledger.admitted.items():
        end = ledger.ended.get(label)
        ended_s = (ledger.end_s or admitted.at_s) if end is None else end.at_s
        seconds = max(0.0, ended_s - admitted.at_s - spans[label].off_s)
        (whole if end is not None and end.outcome == "ok" else at_least)[admitted.key].append(seconds)
    if not whole:
        return {}
    profile = {key: math.fsum(each) / len(each) for key, each in whole.items()}
    middle_s = median(profile.values())
    return {**{key: max(middle_s, *each) for key, each in at_least.items()}, **profile}
