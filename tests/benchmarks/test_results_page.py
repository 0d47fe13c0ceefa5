"""docs/results.md: its tables come from docs/results.json, which one command writes."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from benchmarks import results
from benchmarks.results import page
from benchmarks.results.layout import interval, paired

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the command writes with --quick."""
    folder = tmp_path_factory.mktemp("results")
    results.run(quick=True, folder=folder)
    return folder


def records(folder: Path) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = json.loads((folder / "results.json").read_text())
    return found


def test_the_command_fills_every_table_and_draws_the_picture(made: Path) -> None:
    text = (made / "results.md").read_text()
    assert set(page.blocks(records(made))) == {match[2] for match in page.BLOCK.finditer(text)}
    assert all(match[0].count("\n| ") >= 3 for match in page.BLOCK.finditer(text))
    assert (made / "swe.png").read_bytes().startswith(b"\x89PNG")


def test_nothing_failed_in_any_simulation(made: Path) -> None:
    simulated = [one for found in records(made).values() for one in found if "failed" in one]
    assert len(simulated) > 100
    assert {one["failed"] for one in simulated} == {0}


def test_every_table_of_the_page_is_made_from_its_json() -> None:
    text = (DOCS / "results.md").read_text()
    assert page.filled(text, page.blocks(records(DOCS))) == text


def test_the_records_of_the_page_are_those_of_a_whole_run() -> None:
    kept = records(DOCS)
    for name, asks in results.ASKED.items():
        wanted = [(one.table, one.workload, one.cs, one.seed, one.order, one.trajectories) for one in asks(False)]
        found = [
            (one["table"], one["workload"], one["cs"], one.get("seed", 0), one.get("order", 0), one.get("trajectories"))
            for one in kept[name]
        ]
        assert found == wanted, name


def test_a_changed_figure_would_be_seen(made: Path) -> None:
    changed = records(made)
    changed["swe"][0]["makespan_s"] += 3600
    text = (made / "results.md").read_text()
    assert page.filled(text, page.blocks(changed)) != text


def test_a_table_without_a_place_is_refused(made: Path, tmp_path: Path) -> None:
    shutil.copy(made / "results.json", tmp_path)
    with pytest.raises(ValueError, match=r"places for \['swe'\]"):
        page.filled("<!-- table: swe -->\n<!-- end -->\n", page.blocks(records(tmp_path)))


def test_intervals_are_of_paired_differences() -> None:
    new = [{"order": 1, "s": 9.0}, {"s": 18.0}, {"order": 2, "s": 36.0}]
    old = [{"s": 20.0}, {"order": 1, "s": 10.0}, {"order": 2, "s": 30.0}]
    assert paired(new, old, "s") == pytest.approx([-10.0, -10.0, 20.0])
    # mean 0, standard deviation sqrt(300), t(2) 4.303
    assert interval([-10.0, -10.0, 20.0]) == "+0.0 ± 43.0 %"
