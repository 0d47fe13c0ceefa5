"""What one simulation does: steps as a replay takes them, events as a live run tells them (spec §7), bad input."""

import pickle
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulate_support import batch, of, simulated, trajectory, turn

from agentbatch.errors import UsageError
from agentbatch.events import (
    Admitted,
    AttemptFailed,
    JobEnded,
    Notice,
    RunEnded,
    RunStarted,
    TrajectoryEnded,
    TurnEnded,
    WorkloadKnown,
)
from agentbatch.policy.lbch import Ring
from agentbatch.replay.bound import workload_known
from agentbatch.replay.routes import Routes
from agentbatch.sim import DEFAULT_PRESET, preset
from agentbatch.simulate import SimulateOptions, simulate, worker_names
from agentbatch.trace import TraceTrajectory, summarize

ENGINE = preset(DEFAULT_PRESET)


def alone(prompt: int, output: int, cached: int = 0) -> float:
    return ENGINE.cost.fastest_turn_s(prompt - cached, cached, output, chunk_tokens=8192)


def test_a_trajectory_alone_takes_its_turns_stages_and_waits_one_after_the_other() -> None:
    """The stage before turn 1 comes first; a person's wait after the last turn delays nothing."""
    one = trajectory(
        "t", turn(1000, 50, env_s=7.0), turn(1200, 60, user_s=5.0), turn(1400, 40, env_s=3.0, user_s=99.0),
        env_prepare_s=11.0,
    )  # fmt: skip
    result, events = simulated([one])
    jobs = of(JobEnded, events)
    assert [(job.turns, job.ended_s - job.asked_s) for job in jobs] == [
        (0, 11.0), (1, pytest.approx(7.0)), (3, pytest.approx(3.0)),
    ]  # fmt: skip
    turns = of(TurnEnded, events)
    cached = [one.cached_tokens or 0 for one in turns]
    assert cached[0] == 0
    assert 1000 <= cached[1] <= 1050  # all that stood before, or a little less: where the engine left a state
    assert 1200 <= cached[2] <= 1260
    expected = 11 + 7 + 5 + 3 + alone(1000, 50) + alone(1200, 60, cached[1]) + alone(1400, 40, cached[2])
    assert result.summary.makespan_s == pytest.approx(expected)
    _, second, third = turns
    assert second.started_s == pytest.approx(jobs[1].ended_s)
    assert third.started_s == pytest.approx(second.ended_s + 5.0)


def test_a_persons_wait_keeps_the_admission_slot_and_takes_no_environment_slot() -> None:
    waits = trajectory("a", turn(100, 10, user_s=50.0), turn(200, 10))
    works = trajectory("b", turn(100, 10, env_s=4.0))
    after = trajectory("c", turn(100, 10))
    _, events = simulated([waits, works, after], cs=2, ce={"default": 1})
    [job] = of(JobEnded, events)
    assert job.granted_s == job.asked_s
    admitted = {one.key: one.at_s for one in of(Admitted, events)}
    assert admitted == {"a": 0.0, "b": 0.0, "c": pytest.approx(job.ended_s)}


def test_inference_only_skips_stages_and_waits() -> None:
    workload = batch(0)
    result, events = simulated(workload, inference_only=True)
    assert not of(JobEnded, events)
    assert result.summary.turns == sum(len(one.turns) for one in workload)
    assert result.summary.environment_wait_s is None


def test_events_are_a_live_runs() -> None:
    workload = batch(2)
    result, events = simulated(workload, ce={"default": 2, "bash": 1}, workers=worker_names(3), seed=7, order=1)
    assert isinstance(events[0], RunStarted)
    assert isinstance(events[-1], RunEnded)
    assert (events[0].run, events[0].workers, events[-1].wall_s) == ("replay-7-1", worker_names(3), None)
    times = [one.at_s for one in events if isinstance(one, Admitted | TrajectoryEnded)]
    assert times == sorted(times)
    assert summarize(events) == result.summary
    assert summarize(sorted(events, key=repr)) == result.summary
    [known] = of(WorkloadKnown, events)
    assert known == workload_known(
        workload, source="", routes=Routes({"default": 2, "bash": 1}), workers=3, engine=ENGINE, cs=4,
        inference_only=False,
    )  # fmt: skip
    ring = Ring(worker_names(3))
    idle = [one for one in of(TurnEnded, events) if one.started_s == 0.0][:1]
    assert [one.worker for one in idle] == [ring.home(one.label) for one in idle]
    for one in of(TurnEnded, events):
        assert one.first_byte_s is not None
        assert one.started_s < one.first_byte_s <= one.ended_s


def test_a_context_that_restarts_keeps_the_shared_beginning_and_nothing_else() -> None:
    """Case 47: a prompt that shrinks is handled by spec §7's rule."""
    one = trajectory("t", turn(2000, 10), turn(1500, 10), turn(1700, 10), system_tokens=640)
    result, events = simulated([one])
    assert [one.prompt_tokens for one in of(TurnEnded, events)] == [2000, 1500, 1700]
    first, second, third = (one.cached_tokens or 0 for one in of(TurnEnded, events))
    assert (first, second) == (0, 0)  # no state was left at 640 by turn 1
    assert 1500 <= third <= 1510
    assert result.lengths.restarts == 1
    same = [one.model_copy(update={"id": name}) for name in "tuv"]
    mode = replace(ENGINE.config(), state_mode="extra_buffer", slots_per_request=5)
    again, events = simulated(same, cs=1, worker=mode)
    cached = [one.cached_tokens for one in of(TurnEnded, events, "v")]
    assert cached[:2] == [640, 640]  # by then the branch at the end of the shared beginning has left its state
    assert again.lengths.restarts == 3


def test_two_roles_are_two_contexts() -> None:
    one = trajectory(
        "t", turn(1000, 64, role="agent"), turn(800, 64, role="user_sim"), turn(1100, 64, role="agent"),
        turn(900, 64, role="user_sim"),
    )  # fmt: skip
    _, events = simulated([one])
    first, second, third, fourth = (one.cached_tokens or 0 for one in of(TurnEnded, events))
    assert (first, second) == (0, 0)
    assert 1000 <= third <= 1064
    assert 800 <= fourth <= 864


def test_turns_of_no_tokens_have_one_and_the_run_says_so() -> None:
    """Case 48."""
    one = trajectory("t", turn(0, 0, env_s=0.0), turn(0, 0), turn(500, 0), turn(500, 5))
    result, events = simulated([one])
    assert [(one.prompt_tokens, one.output_tokens) for one in of(TurnEnded, events)] == [
        (1, 1), (2, 1), (500, 1), (501, 5),
    ]  # fmt: skip
    assert result.summary.completed == 1
    [notice] = of(Notice, events)
    assert notice.kind == "lengths"


@pytest.mark.parametrize("cs", [1, 3])
def test_what_never_fits_fails_its_trajectory_and_no_other(cs: int) -> None:
    """Contexts larger than the pool: as a server's 400, which is never tried again; counted and announced."""
    worker = replace(ENGINE.config(), kv_tokens=2000)
    workload = [trajectory(f"t{n}", turn(900, 10, env_s=1.0), turn(1995 if n % 2 else 1500, 10)) for n in range(6)]
    result, events = simulated(workload, worker=worker, cs=cs)
    figures = result.summary
    assert (figures.completed, figures.failed, figures.turns, figures.jobs) == (3, 3, 9, 6)
    assert [one.key for one in result.failures] == ["t1", "t3", "t5"]
    assert {one.turns for one in result.failures} == {1}
    assert "2005 tokens" in (result.failures[0].error or "")
    assert len(of(AttemptFailed, events)) == 3
    [notice] = figures.notices
    assert notice.kind == "too-large"
    assert notice.message.startswith("3 of 6 trajectories failed")
    assert figures.unfinished == 0


def test_a_thousand_that_fail_at_once_do_not_overflow_the_stack() -> None:
    workload = [trajectory(f"t{n}", turn(3000, 10)) for n in range(1500)]
    result, _ = simulated(workload, worker=replace(ENGINE.config(), kv_tokens=2000), cs=1)
    assert (result.summary.failed, result.summary.makespan_s) == (1500, 0.0)


def test_a_context_longer_than_the_models_fails_as_on_the_emulator() -> None:
    result, _ = simulated([trajectory("t", turn(900, 200))], engine=replace(ENGINE, context_tokens=1000))
    assert "1000" in (result.failures[0].error or "")


def test_cs_larger_than_the_batch_is_fine() -> None:
    whole, _ = simulated(batch(0), cs=20)
    more, _ = simulated(batch(0), cs=5000)
    assert whole.summary == more.summary


def test_the_unified_gate_is_the_smaller_limit() -> None:
    both, _ = simulated(batch(0), cs=12, ce={"default": 3}, unified=True)
    three, _ = simulated(batch(0), cs=3, ce={"default": 3})
    assert both.summary == three.summary
    assert both.summary.environment_wait_s == pytest.approx(0.0)


def test_a_limit_that_nothing_falls_under_is_named() -> None:
    result, _ = simulated(batch(0), ce={"default": 2, "bsh": 1})
    assert [notice.kind for notice in result.summary.notices] == ["unused-limit"]


def test_a_profile_that_lacks_some_is_announced() -> None:
    result, _ = simulated(batch(0), admission="longest-first", profile={"t1": 5.0})
    [notice] = result.summary.notices
    assert notice.message.startswith("19 of the 20 trajectories are not in the profile")


@pytest.mark.parametrize("routing", ["lbch", "consistent-hash", "cache-aware", "random"])
def test_results_are_a_function_of_workload_and_options(routing: Any) -> None:
    options = SimulateOptions(cs=7, ce={"default": 2}, workers=worker_names(3), routing=routing, order=2, seed=4)
    first, again = simulate(batch(5), options), simulate(batch(5), pickle.loads(pickle.dumps(options)))
    assert first == again
    assert pickle.loads(pickle.dumps(first)) == first
    assert simulate(batch(5), replace(options, order=3)).summary != first.summary
    assert first.to_dict()["replies_digest"] is None


BAD: list[tuple[dict[str, Any], str]] = [
    ({"cs": 0}, "cs must be a whole number of at least 1"),
    ({"ce": {"default": 0}}, "ce of 'default' must be"),
    ({"ce": {}}, "ce names no resource"),
    ({"routing": "sticky"}, "known: lbch, consistent-hash, cache-aware, random"),
    ({"env_policy": "lifo"}, "choose 'caas', 'fcfs', 'depth' or 'slow-step'"),
    ({"band_s": 0.0}, "band_s"),
    ({"alpha": 0.5}, "alpha must be"),
    ({"workers": ()}, "workers must be"),
    ({"workers": ("a", "a")}, "workers must be"),
    ({"admission": "longest-first"}, "needs a profile"),
    ({"profile": {"t": 1.0}}, "of no use to 'fifo'"),
    ({"order": -1}, "order must be"),
    ({"ce": {"bash": 1}}, "add a limit for them, default=N"),
]


@pytest.mark.parametrize(("fields", "said"), BAD)
def test_what_cannot_be_is_refused_with_the_reason(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        simulated(batch(0), **fields)


def test_an_empty_workload_is_refused() -> None:
    with pytest.raises(UsageError, match="no trajectory"):
        simulated([])


turns = st.builds(
    turn, st.integers(0, 4000), st.integers(0, 300), env_s=st.none() | st.floats(0, 50), role=st.none() | st.just("u"),
    user_s=st.none() | st.floats(0, 20), env_name=st.none() | st.just("bash"),
)  # fmt: skip


@st.composite
def workloads(draw: Any) -> list[TraceTrajectory]:
    shapes = draw(st.lists(st.lists(turns, min_size=1, max_size=5), min_size=1, max_size=8))
    return [
        trajectory(
            f"t{n}", *shape, domain=draw(st.sampled_from("ab")), system_tokens=draw(st.integers(0, 700)),
            env_prepare_s=draw(st.none() | st.floats(0, 9)),
        )
        for n, shape in enumerate(shapes)
    ]  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    workload=workloads(), cs=st.integers(1, 9), ce=st.integers(1, 4), count=st.integers(1, 3),
    routing=st.sampled_from(["lbch", "consistent-hash", "cache-aware", "random"]),
    policy=st.sampled_from(["caas", "fcfs", "depth", "slow-step"]), kv_tokens=st.sampled_from([3000, 20_000]),
)  # fmt: skip
def test_every_batch_ends_within_its_limits_and_never_beats_the_bound(
    workload: list[TraceTrajectory], cs: int, ce: int, count: int, routing: Any, policy: Any, kv_tokens: int
) -> None:
    worker = replace(ENGINE.config(), kv_tokens=kv_tokens)
    result, events = simulated(
        workload, cs=cs, ce={"default": ce, "bash": 1}, workers=worker_names(count), routing=routing, env_policy=policy,
        worker=worker,
    )  # fmt: skip
    figures = result.summary
    assert figures.completed + figures.failed == len(workload)
    assert figures.unfinished == 0
    if not result.failures:
        assert figures.turns == sum(len(one.turns) for one in workload)
        assert figures.makespan_s is not None
        assert figures.lower_bound_s is not None
        assert figures.makespan_s >= figures.lower_bound_s * (1 - 1e-9)
    spans = [(one.admitted_s, one.at_s) for one in of(TrajectoryEnded, events)]
    assert most_at_once(spans) <= cs
    for resource, limit in (("default", ce), ("bash", 1)):
        held = [(one.granted_s, one.ended_s) for one in of(JobEnded, events) if one.resource == resource]
        assert most_at_once(held) <= limit


def most_at_once(spans: list[tuple[Any, Any]]) -> int:
    """How many spans of some length lie over one another at most; at one instant, ends come before starts."""
    edges = sorted(edge for start, end in spans if end > start for edge in ((start, 1), (end, -1)))
    most = now = 0
    for _, step in edges:
        now += step
        most = max(most, now)
    return most
