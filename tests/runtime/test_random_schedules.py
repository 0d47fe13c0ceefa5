"""1,000 random schedules of arriving, finishing, cancelling and resizing against a ten-line model.

Every second one admits the longest first.
"""

import random
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from runtime_helpers import assert_nothing_held

from agentbatch import AgentBatch
from agentbatch.testing import virtual_clock

SCHEDULES = 500
"""Of 30 steps each, on each event loop."""


class Model:
    """Two limits one behind the other, the first by expected length: who is admitted, who is inside."""

    def __init__(self, cs: int, ce: int, expected: dict[str, float]) -> None:
        self.expected = expected  # of whoever arrives; nothing: first come first served
        self.limits = {"cs": cs, "ce": ce}
        self.queue: list[int] = []
        self.admitted: list[int] = []  # in the order in which they joined the queue for the environment
        self.inside: list[int] = []

    def settle(self) -> None:
        while self.queue and len(self.admitted) < self.limits["cs"]:
            longest = max(self.queue, key=lambda one: self.expected.get(str(one), 0.0))  # of equals the first
            self.queue.remove(longest)
            self.admitted.append(longest)
        for one in self.admitted:
            if one not in self.inside and len(self.inside) < self.limits["ce"]:
                self.inside.append(one)

    def leave(self, one: int) -> None:
        for place in (self.queue, self.admitted, self.inside):
            if one in place:
                place.remove(one)


class Run:
    """One schedule, played on a batch and on the model."""

    def __init__(self, batch: AgentBatch, model: Model, source: random.Random, in_order: bool) -> None:
        self.batch = batch
        self.model = model
        self.source = source
        self.in_order = in_order
        self.live: dict[int, tuple[anyio.CancelScope, anyio.Event]] = {}
        self.inside: list[int] = []
        self.arrived = 0

    async def actor(self, one: int) -> None:
        scope, finish = self.live[one]
        with scope:
            async with self.batch.trajectory(one) as trajectory, trajectory.environment():
                self.inside.append(one)
                try:
                    await finish.wait()
                finally:
                    self.inside.remove(one)

    async def step(self, group: Any) -> None:
        kind = self.source.choice(["arrive", "arrive", "arrive", "finish", "finish", "cancel", "resize"])
        model = self.model
        if kind == "arrive":
            one, self.arrived = self.arrived, self.arrived + 1
            self.live[one] = anyio.CancelScope(), anyio.Event()
            model.queue.append(one)
            group.start_soon(self.actor, one)
        elif kind == "resize":
            limit, value = self.source.choice(["cs", "ce"]), self.source.randint(1, 5)
            model.limits[limit] = value
            self.batch.resize(**{limit: value})
        elif kind == "finish" and self.inside:
            one = self.source.choice(self.inside)
            self.live.pop(one)[1].set()
            model.leave(one)
        elif kind == "cancel" and self.live:
            one = self.source.choice(sorted(self.live))
            self.live.pop(one)[0].cancel()
            model.leave(one)
        model.settle()
        await anyio.wait_all_tasks_blocked()
        self.compare()

    def compare(self) -> None:
        now, model = self.batch.statistics(), self.model
        slots = now.environment["default"]
        assert (now.admission.held, now.admission.waiting) == (len(model.admitted), len(model.queue))
        assert (slots.held, slots.waiting) == (len(model.inside), len(model.admitted) - len(model.inside))
        if self.in_order:  # trio starts those woken in one tick in any order
            assert sorted(self.inside) == sorted(model.inside)
        else:
            model.inside = list(self.inside)
            assert len(self.inside) == slots.held
            assert set(self.inside) <= set(model.admitted)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_random_schedules_go_as_the_model_says(backend: str) -> None:
    """python/cpython#90155, agronholm/anyio#1145, dspace-python-client#6: whatever comes together with whatever."""

    async def main() -> None:
        for seed in range(SCHEDULES):
            source = random.Random(seed)
            cs, ce = source.randint(1, 5), source.randint(1, 5)
            profile = {str(one): float(source.randint(1, 5)) for one in range(30)} if seed % 2 else {}
            admission: Any = {"admission": "longest-first", "profile": profile} if profile else {}
            async with AgentBatch(cs=cs, ce=ce, env_policy="fcfs", **admission) as batch:
                run = Run(batch, Model(cs, ce, profile), source, in_order=backend == "asyncio")
                async with anyio.create_task_group() as group:
                    for _ in range(30):
                        await run.step(group)
                    for scope, _ in run.live.values():
                        scope.cancel()
                assert_nothing_held(batch)
                assert not run.inside

    virtual_clock.run(main, backend=backend)
