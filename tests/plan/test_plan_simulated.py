"""What `--calibrate` asks the simulator: makespans of a batch on workers divided by a plan."""

from dataclasses import replace
from typing import Any

import pytest
from plan_configs import LING_3, LLAMA, trajectory, turn

from agentbatch.errors import UsageError
from agentbatch.plan.config import parse_config
from agentbatch.plan.models import model_sizes
from agentbatch.plan.plan import Plan, make_plan
from agentbatch.plan.question import GB, Question
from agentbatch.plan.simulated import simulated_makespan
from agentbatch.plan.sizes import Deployment
from agentbatch.plan.split import Split, divide
from agentbatch.sim.presets import DEFAULT_PRESET, preset

BATCH = [
    trajectory(f"t{n}", *(turn(3000 * step, 40, env_s=1.0, infer_s=1.0) for step in range(1, 6))) for n in range(24)
]


def planned(config: dict[str, Any] = LING_3, gb: float = 1.5, **fields: Any) -> Plan:
    deployment = Deployment(tp=4)
    sizes = model_sizes(parse_config(config), deployment)
    question = Question(
        sizes=sizes, deployment=deployment, memory_bytes=gb * GB, **{"workers": 2, "mode": "no_buffer", **fields}
    )
    return make_plan(question, BATCH)


def makespan_s(plan: Plan, split: Split | None = None, ce: int | None = 4) -> float:
    return simulated_makespan(BATCH, plan.question, ce=ce, engine=preset(DEFAULT_PRESET))(split or plan.split)


def test_a_starved_pool_takes_longer_and_the_same_split_takes_the_same() -> None:
    plan = planned()
    assert plan.balanced is not None
    starved = divide(plan.question, plan.need, plan.balanced * 6)
    assert starved.cs < plan.split.cs
    assert makespan_s(plan, starved) > 1.1 * makespan_s(plan)
    assert makespan_s(plan) == makespan_s(plan)


def test_environment_slots_count_and_none_is_inference_alone() -> None:
    plan = planned(gb=6.0)
    assert makespan_s(plan, ce=None) < makespan_s(plan, ce=24) < makespan_s(plan, ce=1)


@pytest.mark.parametrize("mode", ["no_buffer", "extra_buffer", "extra_buffer_lazy"])
def test_every_mode_runs(mode: str) -> None:
    assert makespan_s(planned(gb=3.0, mode=mode)) > 0


def test_a_model_without_states_runs_too() -> None:
    assert makespan_s(planned(LLAMA, gb=20.0)) > 0


def test_a_trajectory_that_does_not_run_is_an_error() -> None:
    plan = planned()
    small = divide(plan.question, plan.need, (plan.balanced or 0) * 30)
    assert small.kv_tokens < 15_040
    with pytest.raises(UsageError, match="24 trajectories do not run on the simulated workers: t"):
        makespan_s(plan, replace(small, per_worker=1, cs=2))
