"""`agentbatch simulate`: a replay's keys, grids, orders, records, pictures; what it refuses."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from agentbatch.events import RunEnded
from agentbatch.trace import read_run

PROGRAM = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from agentbatch.cli import main; main()"
)
PARAMETERS = {
    "source", "cs", "ce", "unified", "cache_ratio", "schedule_policy", "routing", "alpha", "env_policy", "band_s",
    "bucket_s", "admission", "workers", "preset", "cache_memory_gb", "kv_tokens", "state_slots", "slots_per_request",
    "max_states_per_path", "max_running_requests", "chunked_prefill_tokens", "seed", "mode",
    "label_capacity",
}  # fmt: skip


def lines(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def test_one_simulation_has_a_replays_keys_and_its_parameters(run: Any, trace: Path, against: list[str]) -> None:
    live = run("replay", trace, *against, "--cs", 5, "--ce", 3, "--json").figures
    done = run("simulate", trace, "--cs", 5, "--ce", 3, "--workers", 2, "--json")
    assert (done.status, done.err) == (0, "")
    assert done.figures.keys() == live.keys() | PARAMETERS | {"engine"}
    assert done.figures["engine"]["peak_running"] >= 1
    for key in ("completed", "failed", "turns", "jobs", "input_tokens", "output_tokens"):
        assert done.figures[key] == live[key], key
    assert (done.figures["cs"], done.figures["ce"], done.figures["workers"]) == (5, 3, 2)
    assert done.figures["wall_s"] > 0
    assert done.figures["replies_digest"] is None


def test_a_grid_is_a_line_a_cell_in_a_fixed_order_whatever_the_jobs(run: Any, trace: Path) -> None:
    grid = ("simulate", trace, "--cs", "2,5", "--ce", "1,none", "--ce", "default=2,bash=1", "--env-policy", "caas,fcfs",
            "--json")  # fmt: skip
    alone, spread = lines(run(*grid, "--jobs", 1).out), lines(run(*grid, "--jobs", 2).out)
    assert [(one["cs"], one["ce"], one["env_policy"]) for one in alone] == [
        (cs, ce, policy) for cs in (2, 5) for ce in (1, None, {"default": 2, "bash": 1}) for policy in ("caas", "fcfs")
    ]
    for one in (*alone, *spread):
        assert one.pop("wall_s") > 0
    assert alone == spread
    assert {one["jobs"] for one in alone if one["ce"] is None} == {0}


def test_orders_are_summed_up_as_a_replays(run: Any) -> None:
    figures = run("simulate", "sample", "--limit", 9, "--cs", 2, "--orders", 3, "--json").figures
    makespans = [one["makespan_s"] for one in figures["orders"]]
    assert len(set(makespans)) > 1
    assert figures["makespan_s"] == pytest.approx(sum(makespans) / 3)
    assert figures["range"]["makespan_s"] == [min(makespans), max(makespans)]
    assert "cs" not in figures["orders"][0]


def test_the_tables_fit_80_columns(run: Any, trace: Path) -> None:
    one = run("simulate", trace)
    assert "makespan, s" in one.out
    orders = run("simulate", trace, "--orders", 2)
    assert "makespan of each order" in orders.out
    grid = run("simulate", trace, "--cs", "2,5", "--ce", "1", "--ce", "default=2,bash=1", "--cache-ratio", "0.1,2",
               "--routing", "lbch,consistent-hash", "--env-policy", "slow-step,caas")  # fmt: skip
    for done in (one, orders, grid):
        assert (done.status, done.err) == (0, "")
        assert max(len(line) for line in done.out.partition("┘")[0].splitlines()) <= 80
    assert sum("│" in line for line in grid.out.splitlines()) >= 32


def test_environment_stages_are_capped_first_and_scaled_then(run: Any, trace: Path) -> None:
    def environment_s(*arguments: Any) -> float:
        record = trace.with_name(f"{len(list(trace.parent.iterdir()))}.jsonl")
        assert run("simulate", trace, "--record", record, *arguments).status == 0
        return sum(
            one.ended_s - one.granted_s for one in read_run(record).events if one.event == "environment"
        )  # type: ignore[union-attr]

    assert environment_s() == pytest.approx(25.0)  # 5 x (2 + 3)
    assert environment_s("--env-scale", 30) == pytest.approx(750.0)
    assert environment_s("--env-scale", 30, "--env-cap-s", 2.5) == pytest.approx(5 * 30 * 4.5)
    assert environment_s("--env-scale", 0) == 0.0


def test_a_record_is_a_run_file_and_its_figures_are_the_same(run: Any, trace: Path) -> None:
    record = trace.with_name("run.jsonl")
    figures = run("simulate", trace, "--cs", 2, "--orders", 2, "--record", record, "--json").figures["orders"]
    assert isinstance(read_run(record).events[-1], RunEnded)
    for path, one in zip((record, record.with_name("run.1.jsonl")), figures, strict=True):
        again = run("summary", path, "--json").figures
        assert again["wall_s"] is None
        for key, value in again.items():
            if key != "wall_s":
                assert one[key] == (pytest.approx(value, abs=2e-5) if isinstance(value, float | dict) else value), key


def test_a_run_file_is_simulated_as_what_ran(run: Any, trace: Path) -> None:
    record = trace.with_name("run.jsonl")
    first = run("simulate", trace, "--cs", 2, "--record", record, "--json").figures
    again = run("simulate", record, "--cs", 2, "--json").figures
    for key in ("completed", "turns", "jobs", "input_tokens", "output_tokens"):
        assert again[key] == first[key], key
    assert again["makespan_s"] == pytest.approx(first["makespan_s"], rel=0.05)


def test_an_exact_profile_is_exact_under_cap_and_scale(run: Any, trace: Path) -> None:
    common = ("simulate", trace, "--cs", 1, "--env-scale", 4, "--env-cap-s", 2.5, "--json")
    first = run(*common, "--admission", "fifo,longest-first", "--profile", trace)
    fifo, longest = lines(first.out)
    assert (fifo["admission"], longest["admission"]) == ("fifo", "longest-first")
    assert longest["completed"] == 5
    blurred = run(*common, "--admission", "longest-first", "--profile", trace, "--profile-noise", 1, "--orders", 2)
    assert blurred.status == 0


def test_a_profile_of_a_generated_workload_goes_by_its_name(run: Any) -> None:
    named = ("simulate", "swe", "--limit", 30, "--cs", 6, "--admission", "longest-first", "--profile", "swe", "--json")
    for ce in ("none", "3"):
        figures = run(*named, "--ce", ce).figures
        assert (figures["completed"], figures["notices"]) == (30, [])


def test_generated_workloads_go_by_name_and_files_go_before_them(
    run: Any, trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    named = ("simulate", "mcp-atlas", "--limit", 4, "--env-cap-s", 1, "--json")
    made = run(*named).figures
    assert (made["source"], made["completed"]) == ("mcp-atlas", 4)
    assert run(*named, "--seed", 1).figures["turns"] != made["turns"]
    trace.rename(tmp_path / "mcp-atlas")
    assert run(*named).figures["turns"] == 12


def test_a_grid_is_drawn(run: Any, trace: Path) -> None:
    picture = trace.with_name("map.png")
    done = run("simulate", trace, "--cs", "2,5", "--ce", "1,2", "--env-policy", "caas,fcfs,depth,slow-step",
               "--heat-map", picture, "--jobs", 1)  # fmt: skip
    assert done.status == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert str(picture) in " ".join(done.err.split())


def test_a_picture_without_matplotlib_names_the_extra(
    run: Any, trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    complaint = run("simulate", trace, "--cs", "2,5", "--heat-map", trace.with_name("map.png")).complaint
    assert complaint == '--heat-map needs matplotlib: pip install "agentbatch[report]"'


def test_contexts_larger_than_the_pool_fail_and_are_named(run: Any, trace: Path) -> None:
    done = run("simulate", trace, "--cache-memory-gb", 0.061, "--cache-ratio", 20)
    assert done.status == 0
    assert "trajectories failed, as a server would refuse them" in " ".join(done.out.split())
    assert "agentbatch: trajectory t" in done.err


REFUSED: list[tuple[tuple[Any, ...], str]] = [
    (("--cs", "0"), "--cs takes a whole number of at least 1"),
    (("--cs", "2,x"), "--cs takes a whole number of at least 1, or several with commas between them; not 'x'"),
    (("--cs", "2,2"), "--cs names 2 twice"),
    (("--cs", ""), "--cs takes"),
    (("--ce", "3,3"), "--ce names 3 twice"),
    (("--ce", "bash=1"), "add a limit for them, default=N"),
    (("--ce", "many"), "--ce takes"),
    (("--cache-ratio", "-1"), "--cache-ratio takes a number above 0"),
    (("--cache-ratio", "nan"), "--cache-ratio takes a number above 0"),
    (("--cache-memory-gb", "0"), "cache memory must be a positive number of GB, not 0"),
    (("--schedule-policy", "lifo"), "--schedule-policy takes one of fcfs, lpm, dfs-weight, routing-prefix"),
    (("--routing", "sticky"), "--routing takes one of lbch, consistent-hash, cache-aware, random"),
    (("--env-policy", "caas,lifo"), "--env-policy takes one of caas, fcfs, depth, slow-step"),
    (("--admission", "lifo"), "--admission takes one of fifo, longest-first"),
    (("--admission", "longest-first"), "needs --profile"),
    (("--profile", "x"), "is for --admission longest-first"),
    (("--profile-noise", "1"), "give one with --profile"),
    (("--env-scale", "-1"), "the scale of environment stages must be 0 or more"),
    (("--env-scale", "1e308"), "at most 1,000,000, not 1e+308"),
    (("--cache-memory-gb", "nan"), "cache memory must be a positive number of GB, not nan"),
    (("--cache-ratio", "1e300"), "a cache ratio must be above 0 and at most 1,000,000, not 1e+300"),
    (("--env-cap-s", "-1"), "env_cap_s"),
    (("--preset", "a100"), "unknown preset 'a100'; known:"),
    (("--workers", "0"), "--workers takes"),
    (("--jobs", "0"), "--jobs takes"),
    (("--orders", "0"), "--orders takes"),
    (("--mode", "extra_buffer", "--cache-memory-gb", "0.5"), "each takes slots_per_request = 5. More cache memory"),
    (("--max-states-per-path", "0"), "--max-states-per-path takes"),
    (("--label-capacity", "0"), "label_capacity must be None or at least 1"),
    (("--mode", "lazy"), "Invalid value for '--mode'"),
    (("--chunked-prefill-tokens", "0"), "chunked_prefill_tokens must be at least 1"),
    (("--band-s", "0"), "band_s"),
    (("--alpha", "0.5"), "alpha"),
    (("--heat-map", "map.png"), "compares simulations"),
    (("--heat-map", "map.jpg", "--cs", "2,5"), "draws a PNG"),
    (("--heat-map", "nowhere/map.png", "--cs", "2,5"), "there is no folder nowhere"),
    (("--record", "x.jsonl", "--cs", "2,5"), "--record is for one simulation"),
    (("--record", "nowhere/x.jsonl"), "there is no folder"),
]


@pytest.mark.parametrize(("arguments", "said"), REFUSED)
def test_what_cannot_be_is_refused_before_anything_runs(
    run: Any, trace: Path, arguments: tuple[Any, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in run("simulate", trace, *arguments).complaint
    assert [path.name for path in tmp_path.iterdir()] == [trace.name]


def test_a_name_that_is_neither_file_nor_workload(run: Any) -> None:
    assert run("simulate", "swee").complaint == (
        "there is no file swee; generated workloads are called swe, bfcl, widesearch, mcp-atlas, and sample"
    )


@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_stops_at_once_and_shows_what_finished(jobs: int) -> None:
    """A small cell goes first; the others would take minutes."""
    arguments = ["simulate", "swe", "--cs", "1,50,60", "--ce", "none", "--limit", "12", "--orders", "400", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments, "--jobs", str(jobs)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    family: list[psutil.Process] = []
    until = time.monotonic() + 30
    used_s = 0.0
    while used_s < 2.5 and time.monotonic() < until:  # it has loaded, and simulated something
        time.sleep(0.1)
        family = psutil.Process(process.pid).children(recursive=True)
        used_s = sum(sum(one.cpu_times()[:2]) for one in (family if jobs > 1 else [psutil.Process(process.pid)]))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "agentbatch: interrupted after " in err
    assert psutil.wait_procs(family, timeout=30)[1] == []
    assert lines(out)
    for figures in lines(out):
        assert figures["completed"] == 12
