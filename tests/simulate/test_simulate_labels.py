"""Routing-prefix with as many labels as requests may run churns; with half as many again it does not."""

from dataclasses import replace

from agentbatch.sim.presets import preset
from agentbatch.simulate.options import SimulateOptions
from agentbatch.simulate.runner import simulate
from agentbatch.workloads import generate

ENGINE = preset("h20-tp4-ling-3.0-flash")


def reuse(policy: str, label_capacity: int | None = None) -> float:
    worker = replace(ENGINE.config(state_slots=30, schedule_policy=policy), label_capacity=label_capacity)
    options = SimulateOptions(cs=30, inference_only=True, engine=ENGINE, worker=worker)
    found = simulate(generate("swe", trajectories=30), options).summary.cache_reuse
    assert found is not None
    return found


def test_labels_beyond_the_running_limit_keep_the_cache() -> None:
    fcfs, as_published, with_slack, lpm = (
        reuse("fcfs"), reuse("routing-prefix", 10), reuse("routing-prefix"), reuse("lpm"),
    )  # fmt: skip
    assert fcfs < as_published < with_slack
    assert with_slack > lpm - 0.005
