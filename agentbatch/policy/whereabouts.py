"""Where trajectories spend their time: turns, environment slots, waiting for them, or their own code.

Lives here: counts and their integrals, over the whole run and over about the last minute. Must not live here: what
follows from them (`bottleneck.py`), a clock: every call gives its time in seconds, and times need not ascend.

Rules:
- A trajectory is in one state: a turn in flight goes before a slot held, that before waiting for one, and what is left
  is the harness. Retries and back-off belong to their turn.
- The integral of a count that steps by d at time t is count * now - sum(d * t), so a step costs one multiplication, and
  one that is told late (a grant, before its waiter wakes) is counted from when it happened.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from agentbatch.policy.bottleneck import Bottleneck, TimeSpent, find_bottleneck
from agentbatch.policy.elasticity import Elasticity

MARKS = 12
"""Marks kept a window: its start is known to a twelfth of its length where much happens, exactly where little does."""


class Level:
    """A count and its integral over time."""

    __slots__ = ("_offset", "count")

    def __init__(self) -> None:
        self.count = 0
        self._offset = 0.0

    def step(self, by: int, now_s: float) -> None:
        """Change the count."""
        self.count += by
        self._offset -= by * now_s

    def integral(self, now_s: float) -> float:
        """Return the integral from the start, never below 0 for rounding."""
        return max(0.0, self._offset + self.count * now_s)


class Whereabouts:
    """Adds up where the trajectories of one batch are.

    Args:
        resources: names of the environment resources.
        window_s: length of the window that `spent(…, window=True)` looks at, seconds > 0.
    """

    def __init__(self, resources: Iterable[str], window_s: float = 60.0) -> None:
        self.window_s = window_s
        self.elasticity = Elasticity()
        self.inference, self.environment, self.harness = Level(), Level(), Level()
        self.waiting = {name: Level() for name in resources}
        self.held = {name: Level() for name in self.waiting}
        self.in_flight, self.active, self._busy, self._queued = Level(), Level(), Level(), Level()
        self.completions = 0
        self._levels = (
            self._busy, self._queued, self.inference, self.environment, self.harness,
            *self.waiting.values(), *self.held.values(),
        )  # fmt: skip
        self._marks: deque[tuple[float, tuple[float, ...]]] = deque([(0.0, (0.0,) * (len(self._levels) + 1))])
        self._next_mark_s = window_s / MARKS

    def place(self) -> Place:
        """Return the place of one more trajectory, not admitted yet."""
        return Place(self)

    def queued(self, waiting: int, now_s: float) -> None:
        """Note how many trajectories wait for admission."""
        if (waiting > 0) != (self._queued.count > 0):
            self._queued.step(1 if waiting else -1, now_s)

    def begin_window(self, now_s: float) -> None:
        """Let the window begin now, as when a limit changes: what was before says nothing about the new one."""
        self._marks.clear()
        self._marks.append((now_s, self._totals(now_s)))
        self._next_mark_s = now_s + self.window_s / MARKS

    def ended(self, now_s: float) -> None:
        """Count a turn or a job that ended, and mark the time where a mark is due."""
        self.completions += 1
        if now_s >= self._next_mark_s:
            self._marks.append((now_s, self._totals(now_s)))
            self._next_mark_s = now_s + self.window_s / MARKS
            while len(self._marks) > 1 and self._marks[1][0] <= now_s - self.window_s:
                self._marks.popleft()

    def enter(self, now_s: float) -> None:
        """Count a trajectory in."""
        if not self.active.count:
            self._busy.step(1, now_s)
        self.active.step(1, now_s)

    def leave(self, now_s: float) -> None:
        """Count a trajectory out."""
        self.active.step(-1, now_s)
        if not self.active.count:
            self._busy.step(-1, now_s)

    def spent(self, now_s: float, cs: int, ce: Mapping[str, int], *, window: bool = False) -> TimeSpent:
        """Return the totals up to now.

        Args:
            now_s: now, seconds.
            cs: the admission limit. ce: the limits of the resources given at the start.
            window: count from `window_s` ago instead of from the start.
        """
        totals = self._totals(now_s)
        if window:
            totals = tuple(
                max(0.0, now - then) for now, then in zip(totals, self._at(now_s - self.window_s, now_s), strict=True)
            )
        span_s, queued_s, inference_s, environment_s, harness_s, *rest, completions = totals
        names = tuple(self.waiting)
        return TimeSpent(
            span_s=span_s,
            queued_s=queued_s,
            inference_s=inference_s,
            environment_s=environment_s,
            harness_s=harness_s,
            waiting_s=dict(zip(names, rest[: len(names)], strict=True)),
            held_s=dict(zip(names, rest[len(names) :], strict=True)),
            cs=cs,
            ce=dict(ce),
            completions=int(completions),
            elasticity=self.elasticity.value(),
        )

    def bottleneck(self, now_s: float, cs: int, ce: Mapping[str, int], *, window: bool = False) -> Bottleneck:
        """Say which limit binds; arguments as for `spent`."""
        return find_bottleneck(self.spent(now_s, cs, ce, window=window))

    def _totals(self, now_s: float) -> tuple[float, ...]:
        return (*(level.integral(now_s) for level in self._levels), float(self.completions))

    def _at(self, then_s: float, now_s: float) -> tuple[float, ...]:
        """Return the totals at an earlier time, straight lines between marks: between two nothing much ended."""
        marks = [*self._marks, (now_s, self._totals(now_s))]
        after = next((n for n, mark in enumerate(marks) if mark[0] > then_s), 0)
        if not after:
            return marks[0][1]
        (left_s, left), (right_s, right) = marks[after - 1], marks[after]
        part = (then_s - left_s) / (right_s - left_s)
        return tuple(a + part * (b - a) for a, b in zip(left, right, strict=True))

    def __repr__(self) -> str:
        waiting = sum(level.count for level in self.waiting.values())
        return (
            f"<Whereabouts inference={self.inference.count} environment={self.environment.count} "
            f"waiting={waiting} harness={self.harness.count}>"
        )


class Place:
    """Where one trajectory is; a turn or a job outside its admission counts for the totals, not for the states."""

    __slots__ = ("_all", "_at", "_held", "_turns", "_waiting")

    def __init__(self, whereabouts: Whereabouts) -> None:
        self._all = whereabouts
        self._at: Level | None = None
        self._turns = 0
        self._held = 0
        self._waiting: list[str] = []

    def enter(self, now_s: float) -> None:
        """Be admitted."""
        self._at = self._all.harness
        self._at.step(1, now_s)
        self._all.enter(now_s)

    def leave(self, now_s: float) -> None:
        """Give the admission slot back; a place that was never admitted stays as it is."""
        if self._at is not None:
            self._at.step(-1, now_s)
            self._at = None
            self._all.leave(now_s)

    def turn_began(self, now_s: float) -> float:
        """Launch a turn; returns a mark to end it with."""
        mark = self._all.in_flight.integral(now_s)
        self._all.in_flight.step(1, now_s)
        self._turns += 1
        self._settle(now_s)
        return mark

    def turn_ended(self, mark: float, began_s: float, now_s: float, output_tokens: int | None, ok: bool) -> None:
        """End a turn; only a completed one says how long turns take."""
        whole = self._all
        in_flight = whole.in_flight
        if ok and now_s > began_s:
            mean = (in_flight.integral(now_s) - mark) / (now_s - began_s)
            whole.elasticity.add(now_s - began_s, mean, output_tokens)
        in_flight.step(-1, now_s)
        self._turns -= 1
        self._settle(now_s)
        whole.ended(now_s)

    def job_asked(self, resource: str, now_s: float) -> None:
        """Join a queue for an environment slot."""
        self._waiting.append(resource)
        self._settle(now_s)

    def job_granted(self, resource: str, now_s: float) -> None:
        """Get the slot, `now_s` being when it was granted."""
        self._waiting.remove(resource)
        self._held += 1
        self._all.held[resource].step(1, now_s)
        self._settle(now_s)

    def job_ended(self, resource: str, now_s: float) -> None:
        """Give the slot back."""
        self._held -= 1
        self._all.held[resource].step(-1, now_s)
        self._settle(now_s)
        self._all.ended(now_s)

    def job_withdrew(self, resource: str, now_s: float) -> None:
        """Leave the queue without a slot."""
        self._waiting.remove(resource)
        self._settle(now_s)

    def _settle(self, now_s: float) -> None:
        at = self._at
        if at is None:
            return
        whole = self._all
        if self._turns:
            to = whole.inference
        elif self._held:
            to = whole.environment
        elif self._waiting:
            to = whole.waiting[self._waiting[0]]
        else:
            to = whole.harness
        if to is not at:
            at.step(-1, now_s)
            to.step(1, now_s)
            self._at = to
