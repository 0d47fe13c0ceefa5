"""What a picture and tables of simulations show: failures, noise, what was simulated; whose help is named."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import trajectory

pytest.importorskip("matplotlib")

from rich.console import Console

from agentbatch.report.grid import grid_table
from agentbatch.report.heat_map import heat_map


def cell(cs: int, makespan_s: float | None = 100.0, failed: float = 0, **fields: Any) -> dict[str, Any]:
    return {
        "cs": cs, "ce": 3, "cache_ratio": None, "schedule_policy": "fcfs", "routing": "lbch", "env_policy": "caas",
        "admission": "fifo", "makespan_s": makespan_s, "tail_5_s": 10.0, "cache_reuse": 0.9, "mean_in_flight": 3.0,
        "failed": failed, "bottleneck": "ce:default", **fields,
    }  # fmt: skip


def test_failed_cells_are_grey_and_off_the_colour_scale() -> None:
    panel = heat_map([cell(5, 1000.0), cell(10, 900.0), cell(20, 3.0, failed=2.5), cell(30, None)], ["cs"]).axes[0]
    assert [text.get_text() for text in panel.texts] == ["1,000", "900", "3 failed", "–"]
    norm = panel.images[0].norm
    assert (norm.vmin, norm.vmax) == (pytest.approx(900, rel=0.01), pytest.approx(1000, rel=0.01))
    assert panel.images[0].get_array().mask.tolist() == [[False, False, True, True]]  # type: ignore[union-attr]
    assert heat_map([cell(5, 9.0, failed=1), cell(6, 9.0, failed=1)], ["cs"]).axes[0].texts[0].get_text() == "1 failed"


def test_noise_looks_flat() -> None:
    norm = heat_map([cell(5, 100.0), cell(10, 101.0)], ["cs"]).axes[0].images[0].norm
    assert float(norm(101.0)) - float(norm(100.0)) < 0.12
    wide = heat_map([cell(5, 100.0), cell(10, 200.0)], ["cs"]).axes[0].images[0].norm
    assert (wide.vmin, wide.vmax) == (100.0, 200.0)


def printed(cells: Sequence[dict[str, Any]], axes: Sequence[str]) -> list[str]:
    console = Console(width=80)
    with console.capture() as capture:
        console.print(grid_table(cells, axes, caption="shared", width=80))
    return capture.get().splitlines()


def test_columns_follow_from_the_whole_grid_also_where_one_cell_is_done() -> None:
    head = printed([cell(5)], ["cs", "env_policy"])[1]
    assert [one.strip() for one in head.split("┃")[1:4]] == ["CS", "policy", "makespan, s"]


def test_words_stay_whole_in_80_columns() -> None:
    axes = ["cs", "ce", "cache_ratio", "routing", "env_policy"]
    wide = {"ce": {"default": 2, "bash": 1}, "cache_ratio": 0.35, "env_policy": "slow-step"}
    lines = printed([cell(50, 12_345.0, routing="consistent-hash", **wide), cell(60, routing="lbch", **wide)], axes)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= 80
    for word in ("routing", "policy", "makespan,", "flight", "consistent-", "hash", "default=2,", "bash=1", "12,345"):
        assert word in text, word


def test_captions_say_what_was_simulated(run: Any, trace: Path) -> None:
    single = run("simulate", trace, "--workers", 2, "--ce", 4, "--seed", 0, "--user-cap-s", 60, "--env-scale", 0.5)
    assert "2 × h20-tp4-ling-3.0-flash, CS 50, CE 4, --env-scale 0.5, --user-cap-s 60" in " ".join(single.out.split())
    grid = run("simulate", trace, "--cs", "2,4", "--routing", "lbch,random", "--unified", "--env-cap-s", 0)
    caption = "1 × h20-tp4-ling-3.0-flash, CE 3, --unified, --env-cap-s 0"
    assert caption in [line.strip() for line in grid.out.splitlines()]
    assert "note: CS" not in grid.out


def test_limits_above_the_batch_are_named(run: Any, trace: Path) -> None:
    grid = run("simulate", trace, "--cs", "2,5,50")
    assert "note: CS 5 and 50 all admit the 5 trajectories at once: their rows are alike" in grid.out


def test_recorded_seconds_are_captioned(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "timed.jsonl"
    path.write_text(json.dumps(trajectory("t", [{"prompt_tokens": 9, "output_tokens": 5, "infer_s": 2.0}])))
    assert "recorded seconds, CS 50, CE 3" in " ".join(run("simulate", path).out.split())


def test_an_option_without_its_value_leads_to_the_commands_help(run: Any) -> None:
    assert run("simulate", "sample", "--cs").complaint.endswith("; see agentbatch simulate --help")
    assert run("plan", "sample", "--ce").complaint.endswith("; see agentbatch plan --help")
    assert run("simulate", "--nonsense").complaint.endswith("; see agentbatch simulate --help")
    assert run("nonsense", "--cs").complaint.endswith("; see agentbatch --help")
