"""`agentbatch simulate`: recorded seconds or modelled workers, which of them by default, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentbatch.events import RunStarted
from agentbatch.sim import DEFAULT_PRESET
from agentbatch.trace import read_run

SHAPING = [
    ("--workers", "1"), ("--cache-ratio", "1"), ("--cache-memory-gb", "10"), ("--schedule-policy", "fcfs"),
    ("--routing", "lbch"), ("--alpha", "1.25"), ("--mode", "no_buffer"), ("--max-states-per-path", "1"),
    ("--max-running-requests", "1024"), ("--chunked-prefill-tokens", "8192"), ("--label-capacity", "9"),
]  # fmt: skip


@pytest.fixture
def timed(tmp_path: Path) -> Path:
    """Three trajectories of two turns, 4 + 6 s of inference and a stage of 5 s each."""
    return written(tmp_path / "timed.jsonl", [4.0, 6.0])


def written(path: Path, infer_s: list[float | None]) -> Path:
    turns = [{"prompt_tokens": 200 * (n + 1), "output_tokens": 5, "infer_s": s} for n, s in enumerate(infer_s)]
    turns[0]["env_s"] = 5.0
    lines = [{"id": f"t{number}", "domain": "d", "turns": turns} for number in range(3)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def served(run: Any, *arguments: Any) -> tuple[str, list[str]]:
    done = run("simulate", *arguments, "--json")
    assert done.status == 0, done
    return done.figures["preset"], [one["kind"] for one in done.figures["notices"]]


def test_recorded_seconds_by_default_where_every_turn_has_them_and_the_run_says_so(run: Any, timed: Path) -> None:
    figures = run("simulate", timed, "--ce", 3, "--json").figures
    assert (figures["preset"], figures["makespan_s"], figures["lower_bound_s"]) == ("recorded", 15.0, 15.0)
    assert (figures["workers"], figures["engine"], figures["cache_reuse"]) == (None, None, None)
    [notice] = figures["notices"]
    assert notice["kind"] == "server"
    assert notice["message"].endswith("CS is not limited by a server; name a --preset to model one")
    assert "name a --preset to model one" in " ".join(run("simulate", timed).out.split())
    assert run("simulate", timed, "--ce", 3, "--preset", "recorded", "--json").figures["makespan_s"] == 15.0
    grid = run("simulate", timed, "--ce", 3, "--cs", "1,2")
    assert grid.out.count("name a --preset") == 1


@pytest.mark.parametrize("option", SHAPING, ids=lambda option: option[0])
def test_an_option_about_workers_models_some_and_is_refused_with_recorded(
    run: Any, timed: Path, option: tuple[str, str]
) -> None:
    assert served(run, timed, *option) == (DEFAULT_PRESET, [])
    complaint = run("simulate", timed, "--preset", "recorded", *option).complaint
    assert complaint.startswith(f"{option[0]} shapes modelled workers, and --preset recorded models none")


def test_a_named_preset_and_inference_alone_model_workers(run: Any, timed: Path) -> None:
    assert served(run, timed, "--preset", DEFAULT_PRESET) == (DEFAULT_PRESET, [])
    assert served(run, timed, "--ce", "none") == (DEFAULT_PRESET, [])
    assert served(run, timed, "--inference-only") == (DEFAULT_PRESET, [])
    both = run("simulate", timed, "--ce", "3,none", "--json").out.splitlines()
    assert {json.loads(line)["preset"] for line in both} == {DEFAULT_PRESET}
    assert served(run, timed, "--ce", "none", "--preset", "recorded") == ("recorded", ["server"])


def test_turns_without_seconds_model_workers_and_cannot_be_taken_as_recorded(run: Any, tmp_path: Path) -> None:
    partly = written(tmp_path / "partly.jsonl", [4.0, None])
    assert served(run, partly) == (DEFAULT_PRESET, [])
    assert run("simulate", partly, "--preset", "recorded").complaint == (
        "3 of 6 turns have no infer_s, so that nobody knows how long they took (the first: turn 2 of t0): name a "
        "--preset to model the server"
    )
    assert served(run, "mcp-atlas", "--limit", 2) == (DEFAULT_PRESET, [])


def test_a_record_of_recorded_seconds_sums_up_and_is_simulated_again_to_the_same_end(run: Any, timed: Path) -> None:
    record = timed.with_name("run.jsonl")
    first = run("simulate", timed, "--cs", 2, "--env-policy", "depth", "--record", record, "--json").figures
    [started] = [event for event in read_run(record).events if isinstance(event, RunStarted)]
    assert (started.workers, started.band_s, first["band_s"]) == ((), "auto", "auto")
    again = run("summary", record, "--json").figures
    assert (again["makespan_s"], again["lower_bound_s"]) == (first["makespan_s"], first["lower_bound_s"])
    repeated = run("simulate", record, "--cs", 2, "--env-policy", "depth", "--json").figures
    assert (repeated["preset"], repeated["makespan_s"]) == ("recorded", pytest.approx(first["makespan_s"]))


def test_recorded_seconds_are_drawn_and_counted_over_orders(run: Any, timed: Path) -> None:
    picture = timed.with_name("map.png")
    done = run("simulate", timed, "--cs", "1,2", "--env-policy", "depth,caas", "--orders", 2, "--heat-map", picture)
    assert done.status == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_band_of_each_policy_is_told_as_it_is_in_force(run: Any, timed: Path) -> None:
    def bands(*arguments: Any) -> list[Any]:
        out = run("simulate", timed, "--env-policy", "caas,fcfs,depth,slow-step", *arguments, "--json").out
        return [json.loads(line)["band_s"] for line in out.splitlines()]

    assert bands() == [30.0, None, "auto", None]
    assert bands("--band-s", 60) == [60.0, None, 60.0, None]
    assert bands("--band-s", "auto") == ["auto", None, "auto", None]
