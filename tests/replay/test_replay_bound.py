"""The lower bound by hand, the choice of a speed-up, and which resource a stage takes."""

from dataclasses import replace

import pytest
from replay_support import batch, trajectory, turn

from agentbatch.errors import UsageError
from agentbatch.replay.bound import at_perfect_reuse, chain_s, engine_work_s, expected_makespan_s, workload_known
from agentbatch.replay.pace import MAX_SPEEDUP, choose_speedup
from agentbatch.replay.routes import Routes
from agentbatch.sim import StepCost
from agentbatch.sim.presets import DEFAULT_PRESET, preset
from agentbatch.trace import TraceTrajectory

ENGINE = replace(
    preset(DEFAULT_PRESET),
    cost=StepCost(decode_base=((1, 0.01),), context_s=0.0, prefill_step_s=0.1, prefill_token_s=0.001, attention_s=0.0),
)
"""10 ms a decode step however many share it, 0.1 s a prefill step and 1 ms a new token."""

CHUNK = ENGINE.config().chunked_prefill_tokens

HAND = trajectory(
    "hand",
    turn(100, 11, env_s=5.0, user_s=2.0),
    turn(150, 1, env_s=1.0, env_name="bash", user_s=9.0),
    system_tokens=20,
    env_prepare_s=4.0,
)


def test_perfect_reuse_keeps_all_that_stood_and_the_shared_beginning_of_a_restart() -> None:
    one = trajectory("a", turn(100, 10), turn(130, 5), turn(90, 5), turn(95, 0), system_tokens=20, tool_tokens=10)
    tokens = [(each.new, each.cached, each.output) for each in at_perfect_reuse(one)]
    assert tokens == [(70, 30, 10), (20, 110, 5), (60, 30, 5), (1, 94, 1)]


def test_perfect_reuse_counts_each_context_of_a_trajectory_by_itself() -> None:
    one = trajectory("a", turn(100, 10, role="agent"), turn(50, 5, role="user_sim"), turn(120, 5, role="agent"))
    assert [each.cached for each in at_perfect_reuse(one)] == [0, 0, 110]


def test_a_chain_by_hand() -> None:
    turns_s = (0.1 + 80 * 0.001 + 10 * 0.01) + (0.1 + 39 * 0.001)  # 20 shared, then 111 that stood
    assert chain_s(HAND, None, inference_only=False) == pytest.approx(4 + 5 + 1 + 2)  # the last wait delays nothing
    assert chain_s(HAND, ENGINE, inference_only=False) == pytest.approx(12 + turns_s)
    assert chain_s(HAND, ENGINE, inference_only=True) == pytest.approx(turns_s)


def test_engine_work_by_hand_shares_a_decode_step_among_as_many_as_are_admitted() -> None:
    prefill_s = (80 + 39) * 0.001 + 0.1 * (80 + 39) / CHUNK
    assert engine_work_s(HAND, ENGINE, cs=1) == pytest.approx(prefill_s + 10 * 0.01)
    assert engine_work_s(HAND, ENGINE, cs=5) == pytest.approx(prefill_s + 10 * 0.01 / 5)


def test_what_a_replay_knows_beforehand_by_hand() -> None:
    workload = [HAND, trajectory("other", turn(10, 1, env_s=3.0))]
    known = workload_known(
        workload, source="s", routes=Routes({"default": 2, "bash": 1}), workers=2, engine=ENGINE, cs=4,
        inference_only=False,
    )  # fmt: skip
    assert known.environment_s == {"default": pytest.approx(12.0), "bash": pytest.approx(1.0)}
    assert known.longest_chain_s == pytest.approx(chain_s(HAND, ENGINE, inference_only=False))
    assert known.engine_s == pytest.approx(sum(engine_work_s(one, ENGINE, 4) for one in workload))
    assert (known.trajectories, known.workers, known.source) == (2, 2, "s")
    bare = workload_known(
        workload, source="s", routes=Routes({"default": 2}), workers=1, engine=None, cs=4, inference_only=True
    )
    assert (bare.environment_s, bare.engine_s, bare.longest_chain_s) == ({}, None, 0.0)


def test_a_stage_takes_the_first_of_its_names_that_has_a_limit() -> None:
    routes = Routes({"default": 3, "bash": 1, "slack": 2})
    named = {
        None: "default", "bash": "bash", "other": "default", ("other", "slack", "bash"): "slack", (): "default",
    }  # fmt: skip
    assert {names: routes.of(turn(1, 1, env_name=names)) for names in named} == named
    assert routes.prepare == "default"
    assert Routes({"default": 1, "environment-start": 1}).prepare == "environment-start"


def test_a_stage_without_a_resource_is_refused_and_a_limit_without_a_stage_is_named() -> None:
    workload = [trajectory("a", turn(10, 1, env_s=1.0, env_name="bash"))]
    assert Routes({"bash": 2}).check(workload) == []
    assert Routes({"default": 1, "bash": 2, "slack": 1}).check(workload) == ["slack"]
    with pytest.raises(UsageError, match="default=N"):
        Routes({"slack": 2}).check(workload)
    with pytest.raises(UsageError, match="default=N"):
        Routes({"bash": 2}).check([*workload, trajectory("b", turn(10, 1), env_prepare_s=0.0)])


def expected(workload: list[TraceTrajectory], cs: int, ce: int) -> float:
    routes = Routes({"default": ce})
    return expected_makespan_s(workload, cs=cs, routes=routes, engine=ENGINE, inference_only=False)


def test_the_expected_makespan_falls_with_the_limits_down_to_the_longest_chain() -> None:
    workload = batch(9)
    longest = max(chain_s(one, ENGINE, inference_only=False) for one in workload)
    assert expected(workload, 1, 1) > expected(workload, 3, 3) > expected(workload, 100, 100) == longest
    assert expected(workload, 100, 1) == pytest.approx(sum(one.environment_s for one in workload))


def test_the_speedup_fits_the_wall_time_and_leaves_every_turn_its_own() -> None:
    workload = batch(9)  # 27 turns
    assert choose_speedup(workload, 600.0, 30.0) == 20
    assert choose_speedup(workload, 1e6, 30.0) == MAX_SPEEDUP
    assert choose_speedup(workload, 3.0, 30.0) == 1
    assert choose_speedup(workload * 1000, 27_000.0, 30.0) == 100  # 270 s of turns alone
