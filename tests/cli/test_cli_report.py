"""Tables, progress and aggregates apart from any command."""

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from agentbatch.events import JobEnded, TrajectoryEnded, TurnEnded
from agentbatch.report import progress
from agentbatch.report.aggregate import aggregate, merge_notices
from agentbatch.report.console import complain
from agentbatch.report.progress import ReplayProgress
from agentbatch.report.table import DEMO_ROWS, ROWS, figures_table, note_lines, spread_columns


def drawn(table: Any, width: int = 80) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width).print(table)
    return stream.getvalue()


FIGURES = {
    **dict.fromkeys([key for key, _, _ in ROWS], 1234567.891), "cache_reuse": 0.5, "environment_share": None,
    "tpot_mean_s": 0.0176, "bottleneck": "ce:terminal-bench",
    "time_shares": {"inference": 0.1, "environment": 0.2, "harness": 0.3, "waiting:a": 0.15, "waiting:b": 0.25},
    "unfinished": 0, "retries": 0, "cancelled": 0, "timeouts": 0, "inference_in_environment": 0,
}  # fmt: skip


def test_three_columns_of_large_figures_fit_80_characters_uncut() -> None:
    columns = {"unified 3": FIGURES, "CS 50 FCFS": FIGURES, "CS 50 CAAS": FIGURES}
    for rows in (None, DEMO_ROWS):
        text = drawn(figures_table(columns, rows=rows, title="title", compare=True))
        assert max(map(len, text.splitlines())) <= 80
        assert "…" not in text
        assert text.count("1,234,568") >= 3
    assert "17.6" in drawn(figures_table(columns))
    assert "+0.0 %" in drawn(figures_table(columns, compare=True))


def test_rows_of_trouble_are_left_out_only_where_there_is_none() -> None:
    assert "retries" not in drawn(figures_table({"a": FIGURES, "b": FIGURES}))
    shown = drawn(figures_table({"a": FIGURES, "b": {**FIGURES, "retries": 2, "unfinished": 7}}))
    assert "retries" in shown
    assert "unfinished" in shown
    assert "timeouts" not in shown


def test_unknown_figures_are_dashes_and_nothing_is_compared_with_them() -> None:
    unknown = dict.fromkeys(FIGURES)
    text = drawn(figures_table({"a": unknown, "b": FIGURES}, compare=True))
    [row] = [line for line in text.splitlines() if "against the first" in line]
    assert row.count("–") == 2


NUMBERS = st.none() | st.floats(-1e9, 1e9) | st.integers(-(10**9), 10**9)


@given(st.lists(st.fixed_dictionaries({"a": NUMBERS, "b": NUMBERS}), min_size=2, max_size=5))
def test_means_lie_within_their_range_and_every_run_is_kept(runs: list[dict[str, Any]]) -> None:
    figures = aggregate(runs)
    assert figures["orders"] == runs
    for key in ("a", "b"):
        known = [run[key] for run in runs if run[key] is not None]
        if not known:
            assert figures[key] is None
            assert key not in figures["range"]
        else:
            low, high = figures["range"][key]
            assert (low, high) == (min(known), max(known))
            assert low - 1e-6 <= figures[key] <= high + 1e-6
    assert list(spread_columns(figures)) == ["mean", "lowest", "highest"]


def test_what_is_no_number_stands_where_runs_agree() -> None:
    one = {"makespan_s": 1.0, "torn_tail": False, "replies_digest": "ab", "notices": []}
    assert aggregate([one]) == one
    both = aggregate([one, {**one, "replies_digest": "cd"}])
    assert (both["torn_tail"], both["replies_digest"], both["notices"]) == (False, None, [])


def test_notices_are_merged_and_counted_once_in_words() -> None:
    often = {"kind": "k", "message": "it happened", "count": 2}
    told = {"kind": "usage", "message": "3 completed turns came without token counts", "count": 3}
    merged = merge_notices([[often, told], [often]])
    assert [notice["count"] for notice in merged] == [4, 3]
    assert note_lines(merged) == ["note: it happened (4 times)", f"note: {told['message']}"]
    assert note_lines([{**often, "count": 1}]) == ["note: it happened"]


def test_a_complaint_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    complain("two\n lines [bold]")
    assert capsys.readouterr() == ("", "agentbatch: two lines [bold]\n")


def replay_on(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "stderr", lambda: console)
    with ReplayProgress() as shown:
        hook = shown.hook("a title of many words", 12_345)
        at = {"started_s": 0.0, "ended_s": 123_456.0, "outcome": "ok"}
        turn = {"first_byte_s": None, "endpoint": "", "streamed": True, "attempts": 1}
        hook(TurnEnded(label="a", turn=1, **at, **turn))
        hook(JobEnded(label="a", resource="default", turns=1, asked_s=0.0, granted_s=0.0, ended_s=1.0, outcome="ok"))
        hook(TrajectoryEnded(at_s=123_456.0, key="a", label="a", admitted_s=0.0, outcome="ok", turns=1))


def test_the_progress_line_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    replay_on(Console(file=stream, force_terminal=True, width=80, color_system=None), monkeypatch)
    lines = [line for line in stream.getvalue().splitlines() if "done" in line]
    assert "a title of" in lines[-1]
    assert "1/12345 done" in lines[-1]
    assert "1 turns" in lines[-1]
    assert "123456 s" in lines[-1]


def test_nothing_is_shown_where_stderr_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    replay_on(Console(file=stream), monkeypatch)
    assert stream.getvalue() == ""
