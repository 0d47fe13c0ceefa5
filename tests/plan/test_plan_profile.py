"""What a trace says: lengths at the end of trajectories (L_kv, spec §6) and the CE it asks for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_configs import trajectory, turn

from agentbatch.errors import UsageError
from agentbatch.plan.environment import advise
from agentbatch.plan.profile import profile


def test_l_kv_is_the_last_turn_not_the_longest_and_a_mean_over_trajectories() -> None:
    found = profile([trajectory("a", turn(5000, 100), turn(900, 100)), trajectory("b", turn(2900, 100))])
    assert (found.l_kv_tokens, found.contexts, found.trajectories) == (2000, 1, 2)
    assert (found.longest_tokens, found.longest_id) == (5100, "a")
    assert (found.low_tokens, found.high_tokens) == (1000, 3000)
    assert found.spread == pytest.approx(0.5)


def test_several_contexts_are_summed_and_counted() -> None:
    """τ²: agent and user simulator, each with a context of its own."""
    both = trajectory(
        "a", turn(685, 33, role="user_sim"), turn(441, 10, role="agent"), turn(741, 40, role="user_sim"),
        turn(500, 20, role="agent"),
    )  # fmt: skip
    found = profile([both, trajectory("b", turn(100, 0))])
    assert found.l_kv_tokens == (741 + 40 + 500 + 20 + 100) / 2
    assert found.contexts == 1.5
    assert found.longest_tokens == 781


def test_contexts_at_their_longest() -> None:
    user = [turn(90, 10, role="user_sim"), turn(20, 5, role="user_sim")]
    shrinking = trajectory("a", turn(700, 80), turn(300, 40), *user)
    assert profile([shrinking, trajectory("b", turn(100, 0))]).peak_tokens == (780 + 100 + 100) / 2


def test_a_turn_of_no_length_at_the_end_counts_as_it_is() -> None:
    assert profile([trajectory("a", turn(10, 5), turn(0, 0)), trajectory("b", turn(4, 0))]).l_kv_tokens == 2


def test_nothing_to_plan_with() -> None:
    for trace in ([], [trajectory("a", turn(10, 5), turn(0, 0))]):
        with pytest.raises(UsageError, match="nothing to plan with"):
            profile(trace)


@given(lengths=st.lists(st.integers(1, 10**6), min_size=1, max_size=30))
def test_the_mean_lies_between_shortest_and_longest(lengths: list[int]) -> None:
    found = profile([trajectory(f"t{place}", turn(length, 0)) for place, length in enumerate(lengths)])
    assert min(lengths) <= found.l_kv_tokens <= max(lengths)
    assert min(lengths) <= found.low_tokens <= found.high_tokens <= max(lengths) == found.longest_tokens


def chains(count: int, *, infer_s: float, env_s: float) -> list[object]:
    return [trajectory(f"t{n}", turn(100, 10, infer_s=infer_s, env_s=env_s), turn(150, 10)) for n in range(count)]


@pytest.mark.parametrize(
    ("count", "infer_s", "env_s", "cs", "ce"),
    [
        (40, 3.0, 1.0, 8, 2),  # 40 s of work; 160 s of chains, 8 at a time: 20 s
        (40, 3.0, 1.0, 16, 4),
        (40, 3.0, 1.0, 100, 10),  # all at once: no shorter than one chain, 4 s
        (1, 3.0, 1.0, 8, 1),
        (40, 0.0, 1.0, 8, 8),
    ],
)
def test_the_fewest_slots_that_do_not_bound(count: int, infer_s: float, env_s: float, cs: int, ce: int) -> None:
    advice = advise(chains(count, infer_s=infer_s, env_s=env_s), cs)  # type: ignore[arg-type]
    assert advice.ce == ce
    assert advice.share == env_s / (env_s + infer_s)


def test_preparation_is_environment_and_waits_for_people_are_time() -> None:
    one = trajectory("a", turn(1, 1, infer_s=1.0, user_s=8.0), turn(2, 1, infer_s=1.0, user_s=90.0), env_prepare_s=10.0)
    advice = advise([one] * 4, 2)
    assert (advice.work_s, advice.longest_chain_s, advice.all_chains_s) == (40.0, 20.0, 40.0)
    assert advice.ce == 1


def test_without_environment_times_there_is_no_advice() -> None:
    advice = advise([trajectory("a", turn(1, 1))], 4)
    assert (advice.ce, advice.share, advice.timed_turns, advice.turns) == (None, None, 0, 1)


@given(
    stages=st.lists(st.tuples(st.floats(0, 100), st.floats(0.01, 100)), min_size=1, max_size=20),
    cs=st.integers(1, 40),
)
def test_with_that_many_slots_the_environment_does_not_bound(stages: list[tuple[float, float]], cs: int) -> None:
    trace = [trajectory(f"t{n}", turn(1, 1, infer_s=i, env_s=e)) for n, (i, e) in enumerate(stages)]
    advice = advise(trace, cs)
    assert advice.ce is not None
    others_s = max(advice.all_chains_s, advice.longest_chain_s)
    assert advice.work_s / advice.ce <= others_s * (1 + 1e-6)
    assert advice.ce == 1 or advice.work_s / (advice.ce - 1) > others_s * (1 - 1e-6)
    assert advice.ce <= cs  # more slots than trajectories cannot be needed
