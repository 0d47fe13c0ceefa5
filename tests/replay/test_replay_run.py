"""Replays against emulated workers in this process: what is waited for, held, counted and kept the same (spec §7)."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from replay_support import batch, of, replayed, trajectory, turn

from agentbatch.emulator import MESSAGE_TOKENS, serve
from agentbatch.events import Admitted, JobEnded, RunStarted, TrajectoryEnded, TurnEnded
from agentbatch.trace import cap, read_workload

pytestmark = pytest.mark.asyncio

SAMPLE = Path(__file__).parents[2] / "examples" / "traces" / "sample.jsonl"
SPEEDUP = 400.0
ROOM = 2 * MESSAGE_TOKENS + 1
"""The least step that can be exact: the reply and the answer are a message each, and no answer is empty."""

FOREVER = 1e6
"""Trace seconds: 40 minutes of wall time, so a test in which it is waited for does not end."""


def prompts(events: Sequence[Any], key: str) -> list[int | None]:
    turns = sorted(of(TurnEnded, events, key), key=lambda event: event.turn)
    return [event.prompt_tokens for event in turns]


async def test_every_prompt_and_reply_is_as_long_as_recorded() -> None:
    workload = batch()
    async with serve(workers=2, speedup=SPEEDUP) as emulator:
        result, events = await replayed(workload, emulator.urls)
    assert result.summary.completed == len(workload)
    for one in workload:
        assert prompts(events, one.id) == [each.prompt_tokens for each in one.turns]
    assert result.summary.output_tokens == sum(each.output_tokens for one in workload for each in one.turns)
    assert result.lengths.sent_prompt == result.lengths.recorded_prompt == result.summary.input_tokens
    assert result.notices == ()
    assert result.failures == ()


async def test_the_start_of_the_sample_is_replayed_to_the_token_but_for_steps_without_room() -> None:
    workload = [cap(one, env_cap_s=5.0, user_cap_s=5.0) for one in read_workload(SAMPLE)[:12]]
    async with serve(workers=2, speedup=SPEEDUP) as emulator:
        result, events = await replayed(workload, emulator.urls, cs=12, ce={"default": 12})
    assert result.summary.completed == 12
    for one in workload:
        recorded, stood = 0, 0  # prompt and output of the turn before, as recorded and as replayed
        for each, sent in zip(one.turns, prompts(events, one.id), strict=True):
            fresh = each.prompt_tokens < recorded or not recorded
            assert sent == (each.prompt_tokens if fresh else max(each.prompt_tokens, stood + ROOM))
            recorded = each.prompt_tokens + each.output_tokens
            stood = sent + each.output_tokens


async def test_a_restart_finds_only_the_shared_beginning_in_the_cache() -> None:
    one = trajectory("a", turn(2000, 20), turn(2600, 20), turn(1500, 20), turn(1700, 20), system_tokens=640)
    async with serve(workers=1, speedup=SPEEDUP) as emulator:
        result, events = await replayed([one], emulator.urls)
    cached = [event.cached_tokens or 0 for event in of(TurnEnded, events)]
    assert prompts(events, "a") == [2000, 2600, 1500, 1700]
    assert result.lengths.restarts == 1
    assert cached[1] >= 1900
    assert cached[2] <= 640
    assert cached[3] >= 1400


async def test_two_contexts_of_one_trajectory_grow_apart_under_one_label() -> None:
    turns = [turn(500 + 50 * step, 10, role=role) for step in range(3) for role in ("agent", "user_sim")]
    async with serve(workers=1, speedup=SPEEDUP) as emulator:
        result, events = await replayed([trajectory("tau", *turns)], emulator.urls)
    assert prompts(events, "tau") == [500, 500, 550, 550, 600, 600]
    assert {event.label for event in of(TurnEnded, events)} == {"replay-0-0-tau"}
    assert result.lengths.restarts == 0
    assert all((event.cached_tokens or 0) < 64 for event in of(TurnEnded, events)[:2])  # nothing shared between them


async def test_the_published_tau2_trajectories_complete() -> None:
    workload = [one for one in read_workload(SAMPLE) if any(each.role for each in one.turns)][:6]
    workload = [cap(one, env_cap_s=2.0, user_cap_s=2.0) for one in workload]
    async with serve(workers=2, speedup=SPEEDUP) as emulator:
        result, _ = await replayed(workload, emulator.urls, cs=6)
    assert (result.summary.completed, result.lengths.restarts) == (6, 0)


async def test_a_persons_wait_delays_the_next_turn_and_takes_no_environment_slot() -> None:
    waiting = trajectory("person", turn(100, 2, user_s=600.0), turn(200, 2))
    working = trajectory("tool", turn(100, 2, env_s=1.0), turn(200, 2, env_s=1.0), turn(300, 2))
    async with serve(workers=1, speedup=SPEEDUP) as emulator:
        _, events = await replayed([waiting, working], emulator.urls, cs=2, ce={"default": 1})
    first, second = of(TurnEnded, events, "person")
    assert second.started_s - first.ended_s >= 600.0
    jobs = of(JobEnded, events)
    assert [job.label for job in jobs] == ["replay-0-0-tool"] * 2
    assert all(job.granted_s is not None and job.ended_s < second.started_s for job in jobs)


async def test_a_persons_wait_keeps_the_admission_slot() -> None:
    waiting = trajectory("person", turn(100, 2, user_s=200.0), turn(200, 2))
    async with serve(workers=1, speedup=SPEEDUP) as emulator:
        _, events = await replayed([waiting, trajectory("next", turn(100, 2))], emulator.urls, cs=1)
    [ended], [admitted] = of(TrajectoryEnded, events, "person"), of(Admitted, events, "next")
    assert ended.at_s >= admitted.submitted_s + 200.0
    assert events.index(ended) < events.index(admitted)


async def test_a_last_wait_delays_nothing_even_where_all_turns_are_one_object() -> None:
    same = turn(100, 2, user_s=50.0)
    async with serve(workers=1, speedup=SPEEDUP) as emulator:
        await replayed([trajectory("a", turn(100, 2, user_s=FOREVER))], emulator.urls)
        _, events = await replayed([trajectory("a", same, same, same)], emulator.urls)
    turns = of(TurnEnded, events)
    assert [after.started_s - before.ended_s >= 50.0 for before, after in pairwise(turns)] == [True, True]
    assert of(TrajectoryEnded, events)[0].at_s - turns[-1].ended_s < 50.0


async def test_the_stage_before_the_first_turn_is_a_job_of_no_turns() -> None:
    one = trajectory("a", turn(100, 2, env_s=1.0), turn(200, 2), env_prepare_s=3.0)
    async with serve(workers=1, speedup=SPEEDUP) as emulator:
        _, events = await replayed([one], emulator.urls)
    prepare, stage = of(JobEnded, events)
    assert [prepare.turns, stage.turns] == [0, 1]
    assert prepare.granted_s is not None
    assert prepare.ended_s - prepare.granted_s >= 3.0
    assert prepare.ended_s <= of(TurnEnded, events)[0].started_s


async def test_stages_go_to_the_resources_they_are_named_after() -> None:
    workload = [
        trajectory(
            f"t{number}", turn(100, 2, env_s=4.0, env_name="bash"), turn(200, 2, env_s=4.0, env_name=("x", "slack")),
            turn(300, 2, env_s=4.0, env_name="elsewhere"), env_prepare_s=4.0,
        )
        for number in range(4)
    ]  # fmt: skip
    limits = {"default": 3, "bash": 1, "slack": 2, "environment-start": 1, "unheard-of": 1}
    async with serve(workers=1, speedup=SPEEDUP) as emulator:
        result, events = await replayed(workload, emulator.urls, ce=limits)
    jobs = of(JobEnded, events)
    names = ["environment-start", "bash", "slack", "default"]
    for one in workload:
        assert [job.resource for job in jobs if job.label.endswith(one.id)] == names
    for name in ("bash", "environment-start"):  # one at a time
        spans = sorted((job.granted_s or 0.0, job.ended_s) for job in jobs if job.resource == name)
        assert all(before[1] <= after[0] for before, after in pairwise(spans))
    [notice] = result.notices
    assert (notice.kind, "'unheard-of'" in notice.message) == ("unused-limit", True)


async def test_inference_only_skips_stages_and_waits() -> None:
    one = trajectory("a", turn(100, 2, env_s=FOREVER, user_s=FOREVER), turn(200, 2), env_prepare_s=FOREVER)
    async with serve(workers=1, speedup=SPEEDUP) as emulator:
        result, events = await replayed([one], emulator.urls, inference_only=True, ce={"nothing-named-so": 1})
    assert of(JobEnded, events) == []
    assert (result.summary.completed, result.summary.environment_share) == (1, 0.0)
    assert (result.summary.lower_bound_s or 0.0) < FOREVER


async def test_turns_without_output_or_recorded_times_are_replayed_and_the_difference_is_told() -> None:
    one = trajectory("a", turn(100, 0), turn(0, 0), turn(200, 3, infer_s=None, ttft_s=None))
    async with serve(workers=1, speedup=SPEEDUP) as emulator:
        result, events = await replayed([one], emulator.urls)
    assert [event.output_tokens for event in of(TurnEnded, events)] == [1, 1, 3]
    [notice] = result.notices
    assert notice.kind == "lengths"
    assert notice.details["output_tokens_difference"] == 2


async def test_the_unified_gate_admits_the_smallest_environment_limit() -> None:
    async with serve(workers=1, speedup=SPEEDUP) as emulator:
        _, events = await replayed(batch(), emulator.urls, unified=True, cs=50, ce={"default": 3, "bash": 2})
        _, narrow = await replayed(batch(2), emulator.urls, unified=True, cs=1, ce={"default": 3})
    assert of(RunStarted, events)[0].cs == 2
    assert of(RunStarted, narrow)[0].cs == 1
    active = 0
    for event in events:
        active += isinstance(event, Admitted) - isinstance(event, TrajectoryEnded)
        assert active <= 2
