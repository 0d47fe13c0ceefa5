"""The simulator grants as the live runtime does: one workload through both, on a virtual clock.

The runtime replays through its own code, `TrajectoryReplay`; its turns take what the simulator's took, and no HTTP.
"""

from collections import defaultdict, deque
from itertools import pairwise
from typing import Any

import anyio
import pytest
from simulate_support import batch, of, simulated

from agentbatch import AgentBatch
from agentbatch.events import Admitted, Event, JobEnded, TrajectoryEnded, TurnEnded
from agentbatch.replay.routes import Routes
from agentbatch.replay.submission import ordered
from agentbatch.replay.text import Calibration
from agentbatch.replay.trajectory import TrajectoryReplay
from agentbatch.testing import virtual_clock
from agentbatch.trace import TraceTrajectory

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])
MICROSECOND = 1e-6


def replayed(backend: str, workload: list[TraceTrajectory], turns: list[TurnEnded], **options: Any) -> list[Event]:
    """Replay with turns as long as those of `turns`; return the events."""
    seconds: defaultdict[str, deque[float]] = defaultdict(deque)
    for one in turns:
        seconds[one.label].append(one.ended_s - one.started_s)
    events: list[Event] = []
    seed, order = options.pop("seed", 0), options.pop("order", 0)

    class Timed(TrajectoryReplay):
        async def _complete(self, trajectory: Any, messages: Any, wanted: int) -> tuple[str, int | None, int | None]:
            turn = trajectory.begin_turn("/chat/completions", streamed=True)
            await anyio.sleep(seconds[trajectory.label].popleft())
            turn.finish()
            return "x", None, wanted

    async def main() -> None:
        run = f"replay-{seed}-{order}"
        async with AgentBatch(**options, run=run, on_event=events.append) as live:
            one = Timed(
                model="m", calibration=Calibration(), exact=True, seed=seed, routes=Routes(live.options.ce),
                inference_only=False,
            )  # fmt: skip
            results = await live.map(one.run, ordered(workload, order, seed), key=lambda task: task.id)
            assert all(result.ok for result in results)

    virtual_clock.run(main, backend=backend)
    assert not any(seconds.values())
    return events


def grants(events: list[Event], resource: str) -> list[tuple[str, int]]:
    """Whose job was granted when: labels and turns before it, in order of the grants."""
    jobs = [job for job in of(JobEnded, events) if job.resource == resource]
    return [(job.label, job.turns) for job in sorted(jobs, key=lambda job: (job.granted_s, job.asked_s, job.ended_s))]


def admissions(events: list[Event]) -> list[str]:
    """Labels in order of admission; those of the first instant, whose tasks trio starts in any order, by name."""
    admitted = sorted(of(Admitted, events), key=lambda one: (one.at_s, one.label))
    return [one.label for one in admitted]


def times(events: list[Event]) -> dict[tuple[Any, ...], tuple[float | None, ...]]:
    """When everything happened."""
    found: dict[tuple[Any, ...], tuple[float | None, ...]] = {}
    for event in events:
        match event:
            case JobEnded():
                found["job", event.label, event.turns] = (event.asked_s, event.granted_s, event.ended_s)
            case TurnEnded():
                found["turn", event.label, event.turn] = (event.started_s, event.ended_s)
            case Admitted() | TrajectoryEnded():
                found[event.event, event.label] = (event.at_s,)
    return found


def untied(shape: dict[str, Any], options: dict[str, Any]) -> tuple[list[TraceTrajectory], list[Event]]:
    """Return a workload in which no two jobs ask at one instant, since trio lets either go first; and its events."""
    for seed in range(5, 25):
        workload = batch(seed, **shape)
        _, events = simulated(workload, **options)
        asked = sorted(job.asked_s for job in of(JobEnded, events))
        if min(later - earlier for earlier, later in pairwise(asked)) > MICROSECOND:
            assert len(asked) > 50
            return workload, events
    raise AssertionError("twenty workloads in a row have two jobs that ask at one instant")


def check_same(backend: str, shape: dict[str, Any], **options: Any) -> None:
    workload, modelled = untied(shape, options)
    live = replayed(backend, workload, of(TurnEnded, modelled), **options)
    for resource in options["ce"]:
        assert grants(live, resource) == grants(modelled, resource)
    assert admissions(live) == admissions(modelled)
    theirs = times(live)
    assert theirs.keys() == times(modelled).keys()
    for name, expected in times(modelled).items():
        assert theirs[name] == pytest.approx(expected, abs=MICROSECOND), name


LIMITS: list[dict[str, Any]] = [
    {"cs": 16, "ce": {"default": 1}},
    {"cs": 5, "ce": {"default": 3}},
    {"cs": 12, "ce": {"default": 2, "bash": 1}},
    {"cs": 9, "ce": {"default": 1, "web": 1, "environment-start": 1}},
]
POLICIES: list[dict[str, Any]] = [
    {"env_policy": "caas"},
    {"env_policy": "caas", "band_s": 8.0, "bucket_s": 4.0},
    {"env_policy": "caas", "band_s": "auto"},
    {"env_policy": "fcfs"},
    {"env_policy": "depth"},
    {"env_policy": "slow-step"},
]


@BACKENDS
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("limits", LIMITS)
def test_environment_slots_are_granted_in_the_runtimes_order(
    backend: str, limits: dict[str, Any], policy: dict[str, Any]
) -> None:
    check_same(backend, {}, **limits, **policy)


@BACKENDS
@pytest.mark.parametrize("order", [0, 2])
def test_admission_is_the_runtimes_with_and_without_a_profile(backend: str, order: int) -> None:
    profile = {f"t{number}": float(number * 37 % 11) for number in range(14)}  # equals, and two unknown
    for fields in ({}, {"admission": "longest-first", "profile": profile}, {"unified": True}):
        check_same(backend, {"env_prepare_s": None}, cs=4, ce={"default": 2}, order=order, seed=5, **fields)


def test_the_policies_differ_on_these_workloads() -> None:
    """Else the tests above would show little."""
    limits: dict[str, Any] = {"cs": 16, "ce": {"default": 1}}
    orders = [tuple(grants(simulated(batch(5), **limits, **policy)[1], "default")) for policy in POLICIES]
    assert len(set(orders)) == len(POLICIES)
