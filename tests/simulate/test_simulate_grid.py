"""A grid's workers are those that the options describe."""

from dataclasses import replace

import pytest

from agentbatch.errors import UsageError
from agentbatch.sim import StateMode
from agentbatch.simulate.grid import Grid


@pytest.mark.parametrize(("mode", "slots", "overlap"), [
    ("no_buffer", 3, False), ("extra_buffer", 5, True), ("extra_buffer_lazy", 4, True),
])  # fmt: skip
def test_scheduling_overlaps_in_the_modes_that_count_slots_for_it(mode: StateMode, slots: int, overlap: bool) -> None:
    [cell] = Grid(cs=[5], ce=[None], state_mode=mode, slots_per_request=slots).cells()
    assert cell.options.config.overlap == overlap


def test_a_pool_too_small_is_told_with_the_modes_own_slots() -> None:
    """2 GB at ratio 0.03 make three slots: enough for a request in no_buffer, not in extra_buffer."""
    grid = Grid(cs=[5], ce=[None], cache_memory_gb=2, cache_ratio=[0.03])
    assert grid.cells()[0].options.config.state_slots == 3
    with pytest.raises(UsageError, match=r"state_slots = 3 cannot run .* slots_per_request = 5"):
        replace(grid, state_mode="extra_buffer", slots_per_request=5).cells()
