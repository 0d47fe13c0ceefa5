"""The model of a worker against the real SGLang 0.5.23 on CPU: `make sglang`."""

import pytest
from fidelity import BURST, PLACES, RUNS, SCRIPTS, compare
from sglang_server import Launch, Server

CASES = [(launch, name) for launch, names in RUNS.items() for name in names]

pytestmark = pytest.mark.timeout(300)  # with the start of a server


def cases(names: set[str]) -> pytest.MarkDecorator:
    """The cases of some scripts, by server."""
    chosen = [(launch, name) for launch, name in CASES if name in names]
    ids = [f"{launch.strategy}-{launch.policy}-{name}" for launch, name in chosen]
    # With one name that is not a fixture's, pytest would take function scope and start a server for each test.
    return pytest.mark.parametrize(("server", "name"), chosen, ids=ids, indirect=["server"], scope="session")


@cases({PLACES})
def test_each_request_resumes_where_it_does_in_sglang(server: tuple[Launch, Server], name: str) -> None:
    launch, live = server
    both = compare(live, launch, SCRIPTS[name])
    assert both.real_cached > 0
    assert list(both.differing()) == []


@cases({BURST})
def test_who_is_admitted_next_is_the_policy_s_choice(server: tuple[Launch, Server], name: str) -> None:
    launch, live = server
    both = compare(live, launch, SCRIPTS[name])
    assert both.model.order == both.real.order
    assert list(both.differing()) == []


@cases(set(SCRIPTS) - {PLACES, BURST})
def test_as_much_is_cached_as_in_sglang(server: tuple[Launch, Server], name: str) -> None:
    launch, live = server
    both = compare(live, launch, SCRIPTS[name])
    assert both.real_cached > 0
    assert abs(both.difference) <= 0.05, "\n".join([f"{both.difference:+.1%}", *both.differing()])
    if name == "> 128 waiting":
        assert both.real.peak_waiting is not None
        assert both.real.peak_waiting > 128


@pytest.mark.parametrize("server", list(RUNS), indirect=True, ids=[f"{run.strategy}-{run.policy}" for run in RUNS])
def test_the_server_has_the_pools_that_the_model_is_given(server: tuple[Launch, Server]) -> None:
    launch, live = server
    told = live.get("/server_info")
    state = told["internal_states"][0]
    assert told["max_total_num_tokens"] == launch.kv_tokens
    assert state["max_mamba_cache_size"] == launch.state_slots
    assert state["page_size"] == 1
    assert state["mamba_radix_cache_strategy"] == launch.strategy
    most = min(launch.max_running_requests, launch.state_slots // launch.slots_per_request)
    assert state["effective_max_running_requests_per_dp"] == most
