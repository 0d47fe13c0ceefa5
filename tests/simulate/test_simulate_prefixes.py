"""What trajectories of one domain find of each other's beginnings."""

from dataclasses import replace

import pytest

from agentbatch.events import Event, TurnEnded
from agentbatch.sim.presets import preset
from agentbatch.simulate.options import SimulateOptions
from agentbatch.simulate.prefixes import SharedPrefixes
from agentbatch.simulate.runner import simulate
from agentbatch.trace.workload import TraceTrajectory, TraceTurn


def cached(shared_tokens: int, *, prompt_tokens: int = 20_000) -> list[int | None]:
    """Return the cached tokens of two first turns of one domain, one after the other, in 8,192-token chunks."""
    workload = [
        TraceTrajectory(
            id=name, domain="d", system_tokens=shared_tokens,
            turns=(TraceTurn(prompt_tokens=prompt_tokens, output_tokens=5),),
        )
        for name in ("a", "b")
    ]  # fmt: skip
    found: list[int | None] = []
    engine = preset("h20-tp4-ling-3.0-flash")
    worker = replace(engine.config(), max_states_per_path=None)  # a cap of 1 leaves the deepest only, until paths part
    options = SimulateOptions(cs=1, inference_only=True, engine=engine, worker=worker)

    def listen(event: Event) -> None:
        if isinstance(event, TurnEnded):
            found.append(event.cached_tokens)

    simulate(workload, options, on_event=listen)
    return found


@pytest.mark.parametrize(
    ("shared_tokens", "hit"), [(1_000, 0), (8_000, 0), (8_192, 8_192), (10_000, 8_192), (16_400, 16_384)]
)
def test_a_state_at_a_chunks_end_serves_others_only_inside_what_they_share(shared_tokens: int, hit: int) -> None:
    assert cached(shared_tokens) == [0, hit]


def test_a_shorter_beginning_is_the_start_of_a_longer_one() -> None:
    prefixes = SharedPrefixes()
    short, long = prefixes.of("d", "", 200), prefixes.of("d", "", 320)
    assert short[:3] == long[:3]
    assert short[3] not in long
    assert [sum(tokens for _, tokens in pieces) for pieces in (short, long, prefixes.own(70), prefixes.own(3))] == [
        200, 320, 70, 3,
    ]  # fmt: skip
    assert not set(prefixes.of("d", "user", 200)) & set(short)
