"""Replays against emulated workers in this process: what is waited for, held, counted and kept the same (spec §7)."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from replay_support import batch, of, replayed, trajectory, turn

from agentbatch.emulator import MESSAGE_TOKENS, serve
from agentbatch.errors import StartUpError, UsageError
from agentbatch.events import Admitted, JobEnded, RunStarted, TrajectoryEnded, TurnEnded
from agentbatch.replay.options import ReplayOptions
from agentbatch.replay.orders import record_path, replay_orders
from agentbatch.replay.runner import ordered
from agentbatch.sim import DEFAULT_PRESET
from agentbatch.trace import TraceTrajectory, cap, read_run, read_workload, summarize

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


async def test_the_bound_is_never_above_the_makespan() -> None:
    """But for rounding: the emulator's clock counts whole milliseconds of wall time."""
    sample = [cap(one, env_cap_s=10.0, user_cap_s=10.0) for one in read_workload(SAMPLE)[:8]]
    shrinking = [trajectory(f"s{n}", turn(900, 30, env_s=2.0), turn(400, 30), turn(405, 1)) for n in range(5)]
    bare = [trajectory(f"b{n}", turn(64, 200)) for n in range(6)]
    cases: list[tuple[list[TraceTrajectory], dict[str, Any]]] = [
        (batch(), {}), (batch(), {"unified": True}), (batch(), {"inference_only": True}), (batch(1), {}),
        (batch(), {"ce": {"default": 2, "bash": 1}}), (shrinking, {}), (bare, {"cs": 6}), (bare, {"cs": 1}),
        (sample, {"cs": 8}),
    ]  # fmt: skip
    async with serve(workers=2, speedup=SPEEDUP) as emulator:
        for workload, fields in cases:
            result, _ = await replayed(workload, emulator.urls, preset=DEFAULT_PRESET, **fields)
            bound, makespan = result.summary.lower_bound_s, result.summary.makespan_s
            assert bound is not None
            assert makespan is not None
            assert 0 < bound <= makespan + 0.005 * SPEEDUP


async def test_replies_do_not_depend_on_limits_policy_speedup_workers_or_order() -> None:
    workload = batch()
    ways: list[tuple[int, float, dict[str, Any]]] = [
        (1, SPEEDUP, {}), (3, SPEEDUP, {}), (1, 2 * SPEEDUP, {}), (2, SPEEDUP, {"cs": 1}), (2, SPEEDUP, {"cs": 6}),
        (2, SPEEDUP, {"ce": {"default": 1}}), (2, SPEEDUP, {"env_policy": "fcfs"}), (2, SPEEDUP, {"unified": True}),
        (2, SPEEDUP, {"order": 3}), (2, SPEEDUP, {"inference_only": True}), (2, SPEEDUP, {"flush": False}),
    ]  # fmt: skip
    digests = set()
    for workers, speedup, fields in ways:
        async with serve(workers=workers, speedup=speedup) as emulator:
            result, events = await replayed(workload, emulator.urls, **fields)
        assert result.summary.completed == len(workload)
        assert of(RunStarted, events)[0].workers == tuple(emulator.urls)
        digests.add(result.replies_digest)
    assert len(digests) == 1
    async with serve(workers=1, speedup=SPEEDUP) as emulator:
        other, _ = await replayed(workload, emulator.urls, seed=1)
        fewer, _ = await replayed(workload[1:], emulator.urls)
    assert len({*digests, other.replies_digest, fewer.replies_digest}) == 3


async def test_several_workers_share_the_turns() -> None:
    async with serve(workers=3, speedup=SPEEDUP) as emulator:
        result, events = await replayed(batch(9), emulator.urls, cs=9, ce={"default": 9})
    assert {event.worker for event in of(TurnEnded, events)} <= set(emulator.urls)
    assert len({event.worker for event in of(TurnEnded, events)}) > 1
    assert result.summary.gamma_out is not None
    assert 0 <= result.summary.gamma_out < 1


async def test_a_trajectory_too_long_for_the_server_fails_alone() -> None:
    workload = [*batch(3), trajectory("long", turn(100, 2, env_s=1.0), turn(9000, 2))]
    async with serve(workers=1, speedup=SPEEDUP, kv_tokens=4000) as emulator:
        result, _ = await replayed(workload, emulator.urls)
    assert (result.summary.completed, result.summary.failed, result.summary.unfinished) == (3, 1, 0)
    [failure] = result.failures
    assert failure.key == "long"
    assert "context" in str(failure.error)


async def test_orders_are_seeded_the_first_is_the_files_and_results_come_as_they_are_ready() -> None:
    workload = batch(8)
    names = [[one.id for one in ordered(workload, order, seed)] for order in range(3) for seed in (0, 1)]
    assert names[0] == names[1] == [one.id for one in workload]
    assert names[2] == [one.id for one in ordered(workload, 1, 0)]
    assert len({tuple(order) for order in names}) == 5
    seen: list[float | None] = []
    async with serve(workers=1, speedup=SPEEDUP) as emulator:
        options = ReplayOptions(base_urls=tuple(emulator.urls), cs=1, ce={"default": 1})
        admitted: list[list[str]] = [[], []]
        results = await replay_orders(
            workload[:4], options, 2,
            lambda order: lambda event: admitted[order].append(event.key) if isinstance(event, Admitted) else None,
            lambda result: seen.append(result.summary.makespan_s),
        )  # fmt: skip
    assert admitted == [[one.id for one in ordered(workload[:4], order, 0)] for order in range(2)]
    assert seen == [result.summary.makespan_s for result in results]
    assert results[0].replies_digest == results[1].replies_digest


async def test_a_record_has_every_event_and_sums_up_to_the_same_figures(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    async with serve(workers=2, speedup=SPEEDUP) as emulator:
        result, _ = await replayed(batch(), emulator.urls, record=str(path), preset=DEFAULT_PRESET)
    file = read_run(path)
    again = summarize(file).to_dict()
    figures = result.to_dict()
    assert figures.pop("replies_digest") == result.replies_digest
    assert again.keys() == figures.keys()
    for key, value in figures.items():
        assert again[key] == (pytest.approx(value, abs=2e-5) if isinstance(value, float) else value), key
    assert record_path(str(path), 2) == str(tmp_path / "run.2.jsonl")


async def test_the_speedup_is_the_emulators_own_and_another_is_refused_before_anything_is_recorded(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.jsonl"
    async with serve(workers=2, speedup=SPEEDUP) as emulator:
        with pytest.raises(StartUpError, match=r"pass --speedup 400"):
            await replayed(batch(1), emulator.urls, speedup=60.0, record=str(path))
        assert not path.exists()
        result, events = await replayed(batch(1), emulator.urls, record=str(path))
        assert emulator.peak_in_flight() != (0, 0)
    assert of(RunStarted, events)[0].speedup == SPEEDUP
    assert result.summary.completed == 1


async def test_workers_of_different_speedups_are_refused() -> None:
    async with serve(workers=1, speedup=SPEEDUP) as one, serve(workers=1, speedup=60) as other:
        with pytest.raises(StartUpError, match="one speed-up"):
            await replayed(batch(1), [*one.urls, *other.urls])


@pytest.mark.parametrize(
    "fields",
    [
        {"cs": 0}, {"ce": {}}, {"ce": {"default": 0}}, {"ce": {"slack": 1}}, {"band_s": 0.0},
        {"bucket_s": float("nan")}, {"speedup": 0.0}, {"preset": "none-such"}, {"env_policy": "random"}, {"base_urls": ("ftp://x",)},
    ],
)  # fmt: skip
async def test_options_that_cannot_be_are_refused_before_a_server_is_asked(fields: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        await replayed(batch(2), fields.pop("base_urls", ["http://127.0.0.1:9/v1"]), **fields)
    with pytest.raises(UsageError, match="no trajectory"):
        await replayed([], ["http://127.0.0.1:9/v1"])
