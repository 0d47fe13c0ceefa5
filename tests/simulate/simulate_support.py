"""For the tests of this folder: short builders of workloads, and one simulation with its events."""

import random
from collections.abc import Iterable
from typing import Any, TypeVar

from agentbatch.events import Event
from agentbatch.simulate import SimulateOptions, SimulationResult, simulate
from agentbatch.trace import TraceTrajectory, TraceTurn

E = TypeVar("E")


def turn(prompt: int, output: int, **fields: Any) -> TraceTurn:
    return TraceTurn(prompt_tokens=prompt, output_tokens=output, **fields)


def trajectory(name: str, *turns: TraceTurn, **fields: Any) -> TraceTrajectory:
    return TraceTrajectory(id=name, turns=turns, **{"domain": "d", **fields})


def batch(seed: int, count: int = 20, **fields: Any) -> list[TraceTrajectory]:
    """Make trajectories of all kinds: two resources, stages before turn 1, people's waits, two roles, restarts."""
    source = random.Random(seed)
    made = []
    for number in range(count):
        turns, prompts = [], {"agent": source.randint(200, 900), "user_sim": source.randint(200, 400)}
        for _ in range(source.randint(2, 6)):
            role = "user_sim" if number % 5 == 4 and source.random() < 0.4 else "agent"
            if source.random() < 0.1:
                prompts[role] = source.randint(150, 200)
            output = source.randint(100, 2500)
            turns.append(
                turn(
                    prompts[role], output, role=role,
                    env_s=None if source.random() < 0.1 else source.uniform(0.5, 40.0),
                    env_name=source.choice(["bash", "web", None]),
                    user_s=source.uniform(1.0, 20.0) if source.random() < 0.2 else None,
                )
            )  # fmt: skip
            prompts[role] += output + source.randint(0, 500)
        prepare = source.uniform(1.0, 9.0) if number in (0, 17, 19) else None
        made.append(trajectory(f"t{number}", *turns, **{"env_prepare_s": prepare, "system_tokens": 120, **fields}))
    return made


def simulated(workload: list[TraceTrajectory], **fields: Any) -> tuple[SimulationResult, list[Event]]:
    """Simulate once and return the result and all events."""
    events: list[Event] = []
    options = SimulateOptions(**{"cs": 4, "ce": {"default": 2}, **fields})
    return simulate(workload, options, on_event=events.append), events


def of(kind: type[E], events: Iterable[Event], key: str | None = None) -> list[E]:
    """Return the events of one kind, those of one trajectory where `key` is given."""
    found = [event for event in events if isinstance(event, kind)]
    return found if key is None else [event for event in found if event.label.endswith(f"-{key}")]  # type: ignore[attr-defined]
