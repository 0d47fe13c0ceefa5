"""What a grid's picture and tables show: failures, noise, what was simulated, what an interrupted grid keeps."""

from typing import Any

import pytest

pytest.importorskip("matplotlib")

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
