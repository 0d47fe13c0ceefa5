"""Where no engine is modelled: every turn takes its recorded seconds, however many are in flight."""

import pickle
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulate_support import batch, of, simulated, trajectory, turn

from agentbatch.errors import UsageError
from agentbatch.events import JobEnded, RunStarted, TurnEnded, WorkloadKnown
from agentbatch.replay.bound import RECORDED
from agentbatch.sim import DEFAULT_PRESET, preset
from agentbatch.simulate import SimulateOptions, simulate, worker_names
from agentbatch.simulate.grid import OF_WORKERS, Grid
from agentbatch.simulate.recorded import NOTICE, all_recorded
from agentbatch.trace import TraceTrajectory


def timed(seconds: float, **fields: float) -> TraceTrajectory:
    return trajectory("t", turn(1000, 50, infer_s=seconds, env_s=7.0), turn(1200, 60, infer_s=2.5), **fields)


def test_a_trajectory_alone_takes_its_recorded_seconds_and_that_is_its_bound() -> None:
    result, events = simulated([timed(4.0, env_prepare_s=3.0)], engine=RECORDED)
    assert [(one.started_s, one.ended_s) for one in of(TurnEnded, events)] == [(3.0, 7.0), (14.0, 16.5)]
    assert [(one.asked_s, one.ended_s) for one in of(JobEnded, events)] == [(0.0, 3.0), (7.0, 14.0)]
    figures = result.summary
    assert figures.makespan_s == figures.lower_bound_s == 16.5
    [known] = of(WorkloadKnown, events)
    assert (known.engine_s, known.workers, known.longest_chain_s) == (None, 0, 16.5)


def test_what_no_worker_was_there_to_tell_is_none() -> None:
    result, events = simulated([timed(4.0)], engine=RECORDED)
    figures = result.summary
    assert (figures.input_tokens, figures.output_tokens) == (2200, 110)
    assert (figures.cached_tokens, figures.cache_reuse, figures.new_prefill_tokens) == (None, None, None)
    assert (figures.ttft_mean_s, figures.tpot_mean_s, figures.beta) == (None, None, None)
    assert (result.to_dict()["engine"], result.workers) == (None, {})
    assert [(one.first_byte_s, one.streamed, one.worker) for one in of(TurnEnded, events)] == [(None, False, "")] * 2
    assert [one.workers for one in of(RunStarted, events)] == [()]
    assert [(one.kind, one.message) for one in figures.notices] == [("server", NOTICE)]


def test_a_turn_takes_as_long_however_many_are_in_flight_and_however_long_its_prompt() -> None:
    many = [trajectory(f"t{n}", turn(10_000_000, 50, infer_s=9.0)) for n in range(200)]
    result, _ = simulated(many, engine=RECORDED, cs=200)
    assert (result.summary.makespan_s, result.summary.mean_in_flight, result.summary.failed) == (9.0, 200.0, 0)
    result, _ = simulated(many, engine=RECORDED, cs=50, inference_only=True)
    assert (result.summary.makespan_s, result.summary.mean_in_flight) == (36.0, 50.0)


def test_turns_of_no_seconds_end_in_the_instant_they_begin() -> None:
    many = [trajectory(f"t{n}", *[turn(10, 1, infer_s=0.0) for _ in range(700)]) for n in range(3)]
    result, _ = simulated(many, engine=RECORDED)
    assert (result.summary.makespan_s, result.summary.turns) == (0.0, 2100)


def test_turns_that_nobody_timed_are_refused_with_the_way_on() -> None:
    whole, part = timed(1.0), trajectory("u", turn(5, 5, infer_s=1.0), turn(20, 5), turn(30, 5))
    with pytest.raises(UsageError, match=r"^2 of 5 turns have no infer_s.*turn 2 of u\): name a --preset"):
        simulated([whole, part], engine=RECORDED)
    assert (all_recorded([whole]), all_recorded([whole, part])) == (True, False)
    simulated([whole, part])  # a modelled engine has no need of them


def test_workers_are_refused_where_there_are_none() -> None:
    with pytest.raises(UsageError, match="have no workers to shape"):
        SimulateOptions(cs=1, engine=RECORDED, workers=worker_names(2))
    with pytest.raises(UsageError, match="have no workers to shape"):
        SimulateOptions(cs=1, engine=RECORDED, worker=preset(DEFAULT_PRESET).config())


def test_a_grid_of_recorded_seconds_has_no_figures_of_workers() -> None:
    [cell] = Grid(cs=[3], ce=[{"default": 2}], preset=RECORDED).cells()
    assert cell.options.config is None
    assert cell.parameters["preset"] == RECORDED
    assert {cell.parameters[name] for name in OF_WORKERS} == {None}


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1000), cs=st.integers(1, 24), ce=st.integers(1, 24),
    speeds=st.lists(st.floats(0, 50), min_size=9), policy=st.sampled_from(["caas", "fcfs", "depth", "slow-step"]),
)  # fmt: skip
def test_no_order_beats_the_bound_and_with_slots_for_all_every_order_reaches_it(
    seed: int, cs: int, ce: int, speeds: list[float], policy: str
) -> None:
    workload = [
        one.model_copy(
            update={
                "turns": tuple(t.model_copy(update={"infer_s": speeds[(n + k) % 9]}) for k, t in enumerate(one.turns))
            }
        )
        for n, one in enumerate(batch(seed))
    ]
    options = SimulateOptions(cs=cs, ce={"default": ce}, env_policy=policy, engine=RECORDED)  # type: ignore[arg-type]
    figures = simulate(workload, options).summary
    assert figures == simulate(workload, pickle.loads(pickle.dumps(options))).summary
    assert figures.makespan_s is not None
    assert figures.lower_bound_s is not None
    assert (figures.completed, figures.unfinished) == (20, 0)
    assert figures.makespan_s >= figures.lower_bound_s * (1 - 1e-9)
    free = simulate(workload, replace(options, cs=20, ce={"default": 20})).summary
    assert free.makespan_s == pytest.approx(free.lower_bound_s)
