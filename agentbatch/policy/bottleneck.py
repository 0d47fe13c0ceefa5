"""Which limit binds, and what one more slot is worth: bounds on throughput from where trajectories spend their time.

Lives here: the verdict on a stretch of time, from its totals. Must not live here: how those are added up
(`whereabouts.py`), how turns slow down under load (`elasticity.py`), a clock, anything that acts on the verdict.

A batch is a closed queueing network: CS trajectories go round between turns, environment slots and their own code. With
A active trajectory-seconds in T seconds, W of them spent waiting for slots, and S_r slot-seconds held of a resource r,
throughput X obeys, whatever the order and the distributions (J. P. Buzen, P. J. Denning, "The Operational Analysis of
Queueing Network Models", ACM Computing Surveys 10(3), 1978; asymptotic bounds):

    X' / X <= CE_r T / S_r       no resource is busier than always
    X' / X <= A / (A - W)        as many trajectories, none of them waiting for a slot

The smaller one binds. One more slot of r is worth at most 1 / CE_r, at most what its waiters lose, and no more than the
other resources allow; one more of CS at most 1 / CS, while somebody waits for admission. Where turns slow down as more
are in flight, by elasticity e, X'/X = x stretches them by x^(e / (1 - e)), which both gains pay for. Each is a bound
for a batch that goes on like this, not a forecast: ends of a batch come in whole trajectories.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Literal

Kind = Literal["cs", "ce", "inference", "harness", "trajectories", "unknown"]

ROUNDS_TO_NOTHING = 0.005

ENOUGH_S = 30.0
ENOUGH_COMPLETIONS = 5
"""A shorter stretch with fewer turns and jobs ended says nothing yet."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeSpent:
    """Totals of a stretch of time. Each trajectory is in one state at a time; all figures are finite and >= 0.

    Raises:
        ValueError: a figure is negative or not finite, or a limit is below 1.
    """

    span_s: float
    """Seconds in which at least one trajectory was active."""
    inference_s: float = 0.0
    """Trajectory-seconds with a turn in flight, retries and back-off included; these go before the other states."""
    environment_s: float = 0.0
    """Trajectory-seconds holding an environment slot."""
    harness_s: float = 0.0
    """Trajectory-seconds in none of the other states: the task's own code."""
    waiting_s: Mapping[str, float] = field(default_factory=dict)
    """Trajectory-seconds waiting for a slot of each resource and doing nothing else."""
    held_s: Mapping[str, float] = field(default_factory=dict)
    """Slot-seconds held of each resource."""
    queued_s: float = 0.0
    """Seconds in which at least one trajectory waited for admission."""
    cs: int = 1
    ce: Mapping[str, int] = field(default_factory=dict)
    completions: int = 0
    """Turns and jobs that ended."""
    elasticity: float | None = None
    """By how much turns slow down with requests in flight: 0 not at all, 1 in proportion; None where unknown."""

    def __post_init__(self) -> None:
        for name, value in self._figures():
            if not (0 <= value < math.inf):
                raise ValueError(f"{name} must be finite and 0 or more, not {value!r}")
        if self.cs < 1 or any(slots < 1 for slots in self.ce.values()):
            raise ValueError(f"limits must be 1 or more, not cs={self.cs} and ce={dict(self.ce)}")

    def _figures(self) -> Iterator[tuple[str, float]]:
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, Mapping):
                yield from ((f"{one.name}[{name!r}]", figure) for name, figure in value.items())
            elif value is not None:
                yield one.name, value

    @property
    def waited_s(self) -> float:
        """Trajectory-seconds waiting for any slot."""
        return math.fsum(self.waiting_s.values())

    @property
    def active_s(self) -> float:
        """Trajectory-seconds altogether."""
        return math.fsum((self.inference_s, self.environment_s, self.harness_s, *self.waiting_s.values()))


@dataclass(frozen=True, kw_only=True, slots=True)
class Bottleneck:
    """What a batch waits for, and what one more slot would be worth.

    Attributes:
        kind: "cs" and "ce": that limit. "inference": the server gives no more however many turns are in flight.
            "harness": the tasks' own code. "trajectories": too few are left to fill CS, the longest chains decide.
            "unknown": too little has run.
        resource: the environment resource that binds, where `kind` is "ce".
        shares: of active trajectory time by state, adding up to 1: "inference", "environment", "harness" and
            "waiting:<resource>"; empty where nothing was active.
        gain: throughput that one more slot adds at most, relative (0.5: half as much again), by "cs" and
            "ce:<resource>"; empty where unknown.
        sentence: the verdict for people.
    """

    kind: Kind
    resource: str | None = None
    shares: Mapping[str, float] = field(default_factory=dict)
    gain: Mapping[str, float] = field(default_factory=dict)
    sentence: str = "not known yet: too little has run"

    @property
    def name(self) -> str:
        """The kind, with its resource where it has one: a key of `gain` where a limit binds."""
        return self.kind if self.resource is None else f"{self.kind}:{self.resource}"

    @property
    def short(self) -> str:
        """The verdict in a few characters, such as "CE default +33 %"; empty where unknown."""
        if self.kind == "unknown":
            return ""
        if self.kind == "trajectories":
            return "few left"
        words = {"cs": "CS", "ce": f"CE {self.resource}"}.get(self.kind, self.kind)
        return f"{words} {_gain(self.gain[self.name])}" if self.name in self.gain else words


def find_bottleneck(spent: TimeSpent) -> Bottleneck:
    """Say which limit binds over a stretch of time; pure, O(resources²)."""
    active_s = spent.active_s
    if active_s <= 0 or spent.span_s <= 0:
        return Bottleneck(kind="unknown")
    shares = {
        "inference": spent.inference_s / active_s,
        "environment": spent.environment_s / active_s,
        "harness": spent.harness_s / active_s,
        **{f"waiting:{name}": waited_s / active_s for name, waited_s in spent.waiting_s.items()},
    }
    if spent.span_s < ENOUGH_S and spent.completions < ENOUGH_COMPLETIONS:
        return Bottleneck(kind="unknown", shares=shares)
    drag = shares["inference"] * _stretch(spent.elasticity)
    slack = {name: _slack(spent, name) for name in spent.ce}
    gain = {"cs": _gain_of_cs(spent, drag, slack)}
    for name, slots in spent.ce.items():
        others = min((left for other, left in slack.items() if other != name), default=math.inf)
        waiting = shares.get(f"waiting:{name}", 0.0)
        gain[f"ce:{name}"] = min(1 / slots, _ratio(waiting, 1 - waiting + drag), others)
    kind, resource = _binding(spent, shares, drag, slack)
    full = [name for name, left in slack.items() if left < ROUNDS_TO_NOTHING]
    sentence = _sentence(kind, resource, shares, gain, elasticity=spent.elasticity, full=full)
    return Bottleneck(kind=kind, resource=resource, shares=shares, gain=gain, sentence=sentence)


def _binding(
    spent: TimeSpent, shares: Mapping[str, float], drag: float, slack: Mapping[str, float]
) -> tuple[Kind, str | None]:
    working_s = spent.inference_s + spent.environment_s + spent.harness_s
    room = _ratio(spent.waited_s, working_s)  # A / (A - W) - 1
    contended = [name for name in slack if spent.waiting_s.get(name)]  # full with nobody waiting costs nobody anything
    tightest = min(contended, key=lambda name: (slack[name], -spent.waiting_s[name]), default=None)
    if tightest is not None and slack[tightest] < room:
        return "ce", tightest
    if drag > 1:  # another trajectory would lose more than half of what it brings to slower turns
        return "inference", None
    if 2 * spent.queued_s < spent.span_s:
        return "trajectories", None
    return ("harness" if 2 * spent.harness_s > working_s else "cs"), None


def _slack(spent: TimeSpent, resource: str) -> float:
    """Return how much more of the work the resource could bear, relative: its idle slot-seconds by those held."""
    held_s = spent.held_s.get(resource, 0.0)
    return max(0.0, _ratio(spent.ce[resource] * spent.span_s, held_s) - 1)


def _gain_of_cs(spent: TimeSpent, drag: float, slack: Mapping[str, float]) -> float:
    """Bound the gain while others wait for admission, then spread it over the whole stretch (Amdahl)."""
    gain = min(1 / spent.cs / (1 + drag), *slack.values(), math.inf)
    queued = min(1.0, spent.queued_s / spent.span_s)
    return 1 / (1 - queued + queued / (1 + gain)) - 1 if gain > 0 else 0.0


def _stretch(elasticity: float | None) -> float:
    if elasticity is None:  # unknown: the gains stay bounds without it
        return 0.0
    e = min(max(elasticity, 0.0), 1.0)
    return e / max(1 - e, 1e-9)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else math.inf if part > 0 else 0.0


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _gain(gain: float) -> str:
    return f"+{100 * gain:.0f} %"


def _sentence(
    kind: Kind,
    resource: str | None,
    shares: Mapping[str, float],
    gain: Mapping[str, float],
    *,
    elasticity: float | None,
    full: Sequence[str],
) -> str:
    worth = f"one more slot is worth up to {_gain(gain['cs'])} throughput"
    if kind == "ce":
        return (
            f"CE {resource!r} binds: {_percent(shares[f'waiting:{resource}'])} of active time is spent waiting for it; "
            f"one more slot is worth up to {_gain(gain[f'ce:{resource}'])} throughput"
        )
    if kind == "inference":
        return (
            f"inference binds: it is {_percent(shares['inference'])} of active time, and turns slow down as more are "
            f"in flight (elasticity {elasticity or 0:.2f}); another CS slot is worth up to {_gain(gain['cs'])}"
        )
    if kind == "harness":
        return (
            f"the harness binds: {_percent(shares['harness'])} of active time is neither a turn nor an environment "
            f"job; another CS slot is worth up to {_gain(gain['cs'])}, if the harness is idle then"
        )
    longest = max(("inference", "environment", "harness"), key=lambda state: shares[state])
    where = f"{_percent(shares[longest])} of active time is {longest}"
    if kind == "trajectories":
        return f"no limit binds for most of the time, and the longest chains decide; {where}"
    if full:
        return f"CS binds, and CE {full[0]!r} is full as well: raise both; {where}"
    return f"CS binds: others wait for admission, and {where}; {worth}"
