"""A simulation and a replay over real HTTP, against emulated workers, tell the same about one batch."""

import pytest
from simulate_support import of, simulated, trajectory, turn

from agentbatch.emulator import serve
from agentbatch.events import Event, TurnEnded
from agentbatch.replay.options import ReplayOptions
from agentbatch.replay.runner import replay
from agentbatch.sim import DEFAULT_PRESET
from agentbatch.sim.states import GRID_TOKENS
from agentbatch.trace import TraceTrajectory

pytestmark = pytest.mark.asyncio


def batch() -> list[TraceTrajectory]:
    """Eight trajectories of three turns; one restarts, one has a turn of no tokens, two share less than the others.

    Each begins at another time: two prompts that meet in one step cannot share, and over HTTP they hardly meet.
    """
    made = []
    for number in range(8):
        first, out = 900 + 130 * number, 250 + 20 * number
        second, third = first + out + 300, 600 if number == 3 else first + 2 * out + 700
        made.append(
            trajectory(
                f"t{number}",
                turn(first, out, env_s=6.0 + number / 2),
                turn(second, 0 if number == 5 else out, env_s=9.0 - number / 2),
                turn(third, 80),
                system_tokens=400 if number < 2 else 640, env_prepare_s=1.0 + 2 * number,
            )
        )  # fmt: skip
    return made


async def test_tokens_and_makespan_are_those_of_a_replay() -> None:
    """Prompts within 0.5 %, cached tokens within a block of the emulator's text a turn, the makespan within 5 %.

    HTTP takes time, and templates take tokens.
    """
    events: list[Event] = []
    async with serve(workers=1, speedup=25) as server:
        options = ReplayOptions(base_urls=tuple(server.urls), cs=5, ce={"default": 3}, preset=DEFAULT_PRESET)
        live = (await replay(batch(), options, on_event=events.append)).summary
    result, modelled = simulated(batch(), cs=5, ce={"default": 3})
    model = result.summary
    assert (model.turns, model.jobs, model.completed) == (live.turns, live.jobs, live.completed) == (24, 24, 8)
    assert model.lower_bound_s == live.lower_bound_s
    assert model.output_tokens == live.output_tokens
    assert model.input_tokens == pytest.approx(live.input_tokens, rel=0.005)
    assert model.cached_tokens == pytest.approx(live.cached_tokens, rel=0.03)
    assert model.makespan_s == pytest.approx(live.makespan_s, rel=0.05)
    theirs = {(one.label, one.turn): one.cached_tokens or 0 for one in of(TurnEnded, events)}
    for one in of(TurnEnded, modelled):
        if one.turn > 1:  # what the first finds depends on who was there a moment before
            assert 0 <= (one.cached_tokens or 0) - theirs[one.label, one.turn] < GRID_TOKENS


async def test_labels_have_the_homes_of_a_replay_on_workers_of_the_same_names() -> None:
    events: list[Event] = []
    async with serve(workers=2, speedup=400) as server:
        urls = tuple(server.urls)
        options = ReplayOptions(base_urls=urls, cs=8, ce={"default": 8}, routing="consistent-hash", seed=3)
        await replay(batch(), options, on_event=events.append)
    _, modelled = simulated(batch(), cs=8, ce={"default": 8}, workers=urls, routing="consistent-hash", seed=3)
    placed = [{(one.label, one.turn): one.worker for one in of(TurnEnded, told)} for told in (events, modelled)]
    assert placed[0] == placed[1]
    assert len(placed[0]) == 24
