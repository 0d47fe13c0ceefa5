"""`agentbatch replay` and `agentbatch summary`: figures as JSON and as tables, records, orders, notes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentbatch.emulator import Spawned
from agentbatch.events import JobEnded, RunStarted, TurnEnded
from agentbatch.policy.lbch import Ring
from agentbatch.trace import read_run

KEYS = {
    "makespan_s", "lower_bound_s", "tail_5_s", "tail_10_s", "completed", "failed", "cache_reuse", "input_tokens",
    "cached_tokens", "new_prefill_tokens", "output_tokens", "mean_in_flight", "beta", "gamma_out", "ttft_mean_s",
    "tpot_mean_s", "admission_wait_s", "environment_wait_s", "environment_share", "wall_s",
}  # fmt: skip
"""What every command's --json holds (issue 2)."""

SAMPLE = Path(__file__).parents[2] / "examples" / "traces" / "sample.jsonl"


def started(path: Path) -> RunStarted:
    [event] = [event for event in read_run(path).events if isinstance(event, RunStarted)]
    return event


def widths(text: str) -> int:
    return max(len(line) for line in text.splitlines())


def test_json_alone_on_stdout_holds_every_key(run: Any, trace: Path, against: list[str]) -> None:
    done = run("replay", trace, *against, "--json")
    assert (done.status, done.err) == (0, "")
    assert done.figures.keys() >= KEYS
    assert (done.figures["completed"], done.figures["failed"], done.figures["output_tokens"]) == (5, 0, 75)
    assert done.figures["input_tokens"] == sum(900 + 30 * number for number in range(5))
    assert len(done.figures["replies_digest"]) == 32


def test_a_record_is_readable_and_its_figures_are_the_replays(run: Any, trace: Path, against: list[str]) -> None:
    record = trace.with_name("run.jsonl")
    figures = run("replay", trace, *against, "--record", record, "--json").figures
    again = run("summary", record, "--json").figures
    assert again.keys() >= KEYS
    assert figures.pop("replies_digest")
    assert figures.keys() == again.keys()
    for key, value in figures.items():
        assert again[key] == (pytest.approx(value, abs=2e-5) if isinstance(value, float | dict) else value), key


def test_the_table_fits_80_columns_and_shows_what_json_holds(run: Any, trace: Path, against: list[str]) -> None:
    record = trace.with_name("run.jsonl")
    done = run("replay", trace, *against, "--record", record)
    assert (done.status, done.err) == (0, "")
    table = done.out.partition("┘")[0]  # below it, what binds: words, which wrap at a terminal only
    assert widths(table) <= 80
    for row in ("what binds", "makespan, s", "lower bound, s", "cache reuse", "request imbalance β", "wall time, s"):
        assert row in done.out
    assert "unfinished" not in done.out
    assert "note:" not in done.out
    shown = run("summary", record)
    assert widths(shown.out.partition("┘")[0]) <= 80
    assert [line.split()[1] for line in shown.out.splitlines() if line.startswith("│")] == [
        line.split()[1] for line in done.out.splitlines() if line.startswith("│")
    ]


def test_limits_by_name_policy_widths_and_unified_reach_the_run(run: Any, trace: Path, against: list[str]) -> None:
    first, second = trace.with_name("a.jsonl"), trace.with_name("b.jsonl")
    assert run(
        "replay", trace, *against, "--cs", 4, "--ce", "default=3,bash=2", "--env-policy", "fcfs", "--band-s", 12,
        "--bucket-s", 0.5, "--record", first,
    ).status == 0  # fmt: skip
    asked = started(first)
    assert (asked.cs, dict(asked.ce), asked.env_policy) == (4, {"default": 3, "bash": 2}, "fcfs")
    assert (asked.band_s, asked.bucket_s, asked.unified) == (None, 0.5, False)  # fcfs has no bands
    assert {job.resource for job in read_run(first).events if isinstance(job, JobEnded)} == {"default", "bash"}
    assert run(
        "replay", trace, *against, "--cs", 4, "--ce", "default=3,bash=2", "--unified", "--band-s", 12,
        "--record", second,
    ).status == 0  # fmt: skip
    assert (started(second).cs, started(second).unified, started(second).band_s) == (2, True, 12.0)


def test_orders_give_mean_range_and_each_of_them(run: Any, trace: Path, against: list[str]) -> None:
    record = trace.with_name("run.jsonl")
    orders = ("--cs", 1, "--orders", 3)
    figures = run("replay", trace, *against, *orders, "--record", record, "--json").figures
    assert figures.keys() >= KEYS
    makespans = [order["makespan_s"] for order in figures["orders"]]
    assert len(makespans) == 3
    assert figures["makespan_s"] == pytest.approx(sum(makespans) / 3)
    assert figures["range"]["makespan_s"] == [min(makespans), max(makespans)]
    assert figures["range"]["completed"] == [5, 5]
    assert figures["torn_tail"] is False
    assert {order["replies_digest"] for order in figures["orders"]} == {figures["replies_digest"]}
    for number, name in enumerate(("run.jsonl", "run.1.jsonl", "run.2.jsonl")):
        assert run("summary", trace.with_name(name), "--json").figures["makespan_s"] == pytest.approx(
            makespans[number], abs=2e-5
        )
    table = run("replay", trace, *against, *orders)
    assert widths(table.out) <= 80
    heading = table.out.splitlines()[1]
    assert [word for word in heading.split() if word.isalpha()] == ["mean", "lowest", "highest"]
    assert "makespan of each order, s: " in table.out


def test_a_limit_takes_the_first_of_the_file_and_a_seed_changes_the_text(
    run: Any, trace: Path, against: list[str]
) -> None:
    digests = set()
    for seed in (0, 0, 1):
        figures = run("replay", trace, *against, "--limit", 2, "--seed", seed, "--json").figures
        assert (figures["completed"], figures["input_tokens"]) == (2, 900 + 930)
        digests.add(figures["replies_digest"])
    assert len(digests) == 2
    assert run("replay", trace, *against, "--limit", 99, "--json").figures["completed"] == 5


def test_inference_only_and_caps_change_the_work(run: Any, trace: Path, against: list[str]) -> None:
    bare = run("replay", trace, *against, "--inference-only", "--ce", "slack=1", "--json").figures
    assert (bare["jobs"], bare["environment_share"], bare["completed"]) == (0, 0.0, 5)
    capped = run("replay", trace, *against, "--ce", 1, "--env-cap-s", 0.5, "--json").figures
    assert capped["jobs"] == 10
    assert capped["lower_bound_s"] == pytest.approx(10 * 0.5)


def test_a_preset_adds_inference_to_the_bound_of_a_server(run: Any, trace: Path, against: list[str]) -> None:
    plain = run("replay", trace, *against, "--cs", 5, "--ce", 50, "--json").figures
    modelled = run("replay", trace, *against, "--cs", 5, "--ce", 50, "--preset", "h200-tp4-kda-mla", "--json").figures
    assert plain["lower_bound_s"] == pytest.approx(5.0)
    assert modelled["lower_bound_s"] > 5.0


def test_another_speedup_than_the_emulators_is_refused(run: Any, trace: Path, against: list[str]) -> None:
    record = trace.with_name("run.jsonl")
    complaint = run("replay", trace, *against, "--speedup", 60, "--record", record).complaint
    assert "is an emulated worker at speed-up 400 but the replay runs at 60: pass --speedup 400" in complaint
    assert not record.exists()
    assert run("replay", trace, *against, "--speedup", 400, "--record", record).status == 0
    assert started(record).speedup == 400.0


def test_what_failed_is_named_on_stderr_and_counted(run: Any, trace: Path, against: list[str]) -> None:
    long = {"id": "long", "domain": "d", "turns": [{"prompt_tokens": 1_000_000, "output_tokens": 60_000}]}
    with trace.open("a") as file:
        file.write(json.dumps(long) + "\n")
    done = run("replay", trace, *against, "--json")
    assert (done.status, done.figures["completed"], done.figures["failed"]) == (0, 5, 1)
    assert done.err.startswith("agentbatch: trajectory long failed: BadRequestError: ")
    table = run("replay", trace, *against)
    assert [row.split("│")[2].strip() for row in table.out.splitlines() if "failed" in row] == ["1"]


def test_notes_go_to_stderr_while_it_runs_and_stand_under_the_table(run: Any, trace: Path, against: list[str]) -> None:
    odd = ("--ce", "default=3,slcak=1", "--orders", 2)
    done = run("replay", trace, *against, *odd)
    said = "no environment stage of this workload belongs to 'slcak': its limit changes nothing"
    assert done.err.splitlines() == [f"agentbatch: note: {said}"] * 2
    assert done.out.splitlines()[-1] == f"note: {said} (2 times)"
    figures = run("replay", trace, *against, *odd, "--json").figures
    assert figures["notices"] == [{"kind": "unused-limit", "message": said, "count": 2}]


def test_a_run_that_was_killed_sums_up_with_what_is_missing(run: Any, trace: Path, against: list[str]) -> None:
    record = trace.with_name("run.jsonl")
    run("replay", trace, *against, "--cs", 1, "--record", record)
    lines = record.read_bytes().splitlines(keepends=True)
    record.write_bytes(b"".join(lines[: len(lines) // 2]) + b'{"event":"tu')
    figures = run("summary", record, "--json").figures
    assert figures["unfinished"] >= 2
    assert figures["torn_tail"] is True
    shown = run("summary", record)
    assert widths(shown.out.partition("└")[0]) <= 80
    assert [row.split("│")[2].strip() for row in shown.out.splitlines() if "│ unfinished" in row] == [
        str(figures["unfinished"])
    ]
    assert "note: the record ends in the middle of an event: line " in shown.out
    assert "trajectories never ended" in shown.out
    assert " times)" not in shown.out


def test_emulated_workers_are_started_sized_and_stopped(run: Any, trace: Path) -> None:
    sizes = ("--kv-tokens", 2000, "--state-slots", 30, "--schedule-policy", "fcfs", "--preset", "h200-tp4-kda-mla")
    done = run("replay", trace, "--emulate", 2, "--speedup", 300, *sizes, "--no-flush", "--json")
    assert (done.status, done.err) == (0, "")
    assert done.figures["completed"] == 5
    assert done.figures["beta"] is not None
    assert done.figures["lower_bound_s"] <= done.figures["makespan_s"]


@pytest.mark.parametrize("routing", ["lbch", "consistent-hash", "random"])
def test_every_routing_places_the_turns_and_tells_how_evenly(
    run: Any, trace: Path, emulator: Spawned, against: list[str], routing: str
) -> None:
    """Case 39, prime-rl#3255 and verl#6533: what sticky placement costs stands in beta and gamma_out."""
    record = trace.with_name("run.jsonl")
    options = ("--routing", routing, "--alpha", 1.5, "--record", record)
    done = run("replay", trace, *against, *options, "--json")
    assert (done.status, done.err) == (0, "")
    assert done.figures["completed"] == 5
    assert 0 <= done.figures["beta"] <= 1
    assert 0 <= done.figures["gamma_out"] <= 1
    assert (started(record).routing, started(record).alpha) == (routing, 1.5)
    if routing == "consistent-hash":
        ring = Ring(emulator.urls)
        turns = [event for event in read_run(record).events if isinstance(event, TurnEnded)]
        assert len(turns) == 15
        assert all(turn.worker == ring.home(turn.label) for turn in turns)


def test_a_pipe_gets_json_only(trace: Path) -> None:
    """As in `agentbatch replay … --json | python -m json.tool`, and with a reader that goes away."""
    command = f"{sys.executable} -m agentbatch replay {trace} --emulate 1 --speedup 400 --json"
    piped = f"{command} | {sys.executable} -m json.tool"
    tool = subprocess.run(piped, shell=True, capture_output=True, text=True, timeout=50, check=False)
    assert tool.returncode == 0
    assert json.loads(tool.stdout)["completed"] == 5
    assert tool.stderr == ""


def test_a_reader_that_went_away_is_no_traceback(trace: Path, against: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "agentbatch", "replay", str(trace), *against, "--json"]
    with os.fdopen(writing, "wb") as closed:
        done = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, text=True, timeout=50, check=False)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["replay", "summary", "demo", "emulate"])
def test_help_teaches_by_examples_in_80_columns(run: Any, command: str) -> None:
    done = run(command, "--help")
    assert done.status == 0
    assert widths(done.out) <= 80
    assert "Try it:" in done.out or "Go on with:" in done.out


def test_the_version_is_printed(run: Any) -> None:
    assert run("--version").out.startswith("agentbatch 0.")
