"""What replays leave behind: figures, the bound, digests, orders, records; and what they refuse (spec §7, §8)."""

from pathlib import Path
from typing import Any

import pytest
from replay_support import batch, of, replayed, trajectory, turn

from agentbatch.emulator import serve
from agentbatch.errors import StartUpError, UsageError
from agentbatch.events import Admitted, RunStarted, TurnEnded
from agentbatch.replay.options import ReplayOptions
from agentbatch.replay.orders import record_path, replay_orders
from agentbatch.replay.submission import ordered
from agentbatch.sim import DEFAULT_PRESET
from agentbatch.trace import TraceTrajectory, cap, read_run, read_workload, summarize

pytestmark = pytest.mark.asyncio

SAMPLE = Path(__file__).parents[2] / "examples" / "traces" / "sample.jsonl"
SPEEDUP = 400.0


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
        (1, SPEEDUP, {}), (3, 2 * SPEEDUP, {}), (2, SPEEDUP, {"cs": 1, "order": 3}), (2, SPEEDUP, {"cs": 6}),
        (2, SPEEDUP, {"ce": {"default": 1}, "env_policy": "fcfs"}), (2, SPEEDUP, {"unified": True}),
        (1, SPEEDUP, {"inference_only": True, "flush": False}),
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
        # a record rounds times to microseconds, which may move the last decimals and a percentage in a sentence
        if isinstance(value, float | dict):
            assert again[key] == pytest.approx(value, abs=2e-5), key
        elif key != "bottleneck_sentence":
            assert again[key] == value, key
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
