"""`agentbatch workload`: the figures of a generated workload, and the trace file of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentbatch.report.workload import workload_table
from agentbatch.trace import read_workload
from agentbatch.workloads import WORKLOADS, aggregate, generate


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_table_fits_80_columns_and_says_where_figures_come_from(run: Any, name: str) -> None:
    done = run("workload", name)
    assert (done.status, done.err) == (0, "")
    table, _, rest = done.out.partition("└")
    assert max(map(len, table.splitlines())) <= 80
    rows = {cells[1].strip(): [cell.strip() for cell in cells[2:-1]] for cells in map(split, table.splitlines()[4:])}
    spec = WORKLOADS[name]
    assert rows["trajectories"] == [f"{spec.trajectories:,}", "", "published"]
    assert rows["output tokens"] == [f"{spec.output_tokens:,}", "", spec.sources["output tokens"].kind]
    assert rows["r_bal"] == [f"{spec.r_bal:.4f}", "", f"published: {spec.r_bal:.2f}"]
    assert ("stage, seconds" in rows) == (name == "mcp-atlas")
    for field, source in spec.sources.items():
        assert f"{field}: {source.kind}, {source.text}" in rest
    assert "our inference" in rest


def split(row: str) -> list[str]:
    return row.split("│")


def test_another_number_of_trajectories_is_said_to_be_scaled() -> None:
    made = aggregate(generate("swe", trajectories=20))
    table = workload_table(WORKLOADS["swe"], made)
    assert list(table.columns[3].cells)[:3] == ["as asked", "published, scaled", "published, scaled"]


def test_json_has_figures_and_sources(run: Any) -> None:
    figures = run("workload", "mcp-atlas", "--trajectories", 30, "--seed", 4, "--json").figures
    made = generate("mcp-atlas", seed=4, trajectories=30)
    assert (figures["workload"], figures["seed"], figures["trajectories"], figures["requests"]) == (
        "mcp-atlas", 4, 30, 300,
    )  # fmt: skip
    assert figures["environment_s"] == pytest.approx(sum(one.environment_s for one in made))
    assert set(figures["turns"]) == {"mean", "p10", "p50", "p90", "max"}
    assert figures["sources"]["requests"]["kind"] == "assumed"
    assert figures["stage_s"]["max"] <= 60
    assert run("workload", "bfcl", "--trajectories", 3, "--json").figures["stage_s"] is None


def test_a_written_file_is_a_trace_that_says_how_it_was_made(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "wide.jsonl"
    done = run("workload", "widesearch", "--trajectories", 5, "--seed", 2, "--out", path)
    assert (done.status, done.err) == (0, "")
    assert done.out == f"{path}: 5 trajectories, 142 turns\n"
    assert read_workload(path) == generate("widesearch", seed=2, trajectories=5)
    about = json.loads(path.read_text(encoding="utf-8").splitlines()[0])["about"]
    assert about.startswith("Generated, not recorded: agentbatch workload widesearch --seed 2 --trajectories 5, WideS")
    for field, source in WORKLOADS["widesearch"].sources.items():
        assert f"{field}: {source.kind}, {source.text}" in about
    again = run("workload", "widesearch", "--out", path).complaint
    assert "it exists, and a trace is never overwritten" in again
    assert len(read_workload(path)) == 5


def test_json_goes_with_a_file_too(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "swe.jsonl"
    assert run("workload", "swe", "--trajectories", 2, "--out", path, "--json").figures["trajectories"] == 2
    assert len(read_workload(path)) == 2


def test_what_cannot_be_is_refused(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    said = run("workload", "gaia", "--out", path).complaint
    assert said == "unknown workload 'gaia'; known: swe, bfcl, widesearch, mcp-atlas"
    assert "at least 1 trajectory, not 0" in run("workload", "swe", "--trajectories", 0, "--out", path).complaint
    assert "'--seed'" in run("workload", "swe", "--seed", "x").complaint
    assert not path.exists()


def test_help_names_every_workload(run: Any) -> None:
    shown = run("workload", "--help").out
    assert [name for name in WORKLOADS if name not in shown] == []
