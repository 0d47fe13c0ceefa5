"""The event loop's lag: measured on the machine's clock, told when it is bad, absent on a virtual one."""

import asyncio
from typing import Any

import anyio
import pytest

from agentbatch import AgentBatch, LoopLag
from agentbatch.runtime import lag
from agentbatch.runtime.clock import BatchClock
from agentbatch.runtime.hub import Hub
from agentbatch.testing import virtual_clock


def test_mean_and_worst_overall_and_of_the_last_minute() -> None:
    hub = Hub(BatchClock())
    meter = lag.LagMeter(hub)
    assert meter.overall is meter.last_minute is None
    meter.add(0.5)
    for _ in range(240):  # a minute
        meter.add(0.1)
    assert meter.last_minute == LoopLag(mean_s=pytest.approx(0.1), worst_s=0.1)
    assert meter.overall == LoopLag(mean_s=pytest.approx((0.5 + 24) / 241), worst_s=0.5)
    assert hub.notice_count == 0
    meter.add(1.5)
    meter.add(2.5)
    [notice] = hub.notices
    assert (notice.kind, notice.details) == ("loop-blocked", {"lag_s": 1.5})
    assert "neither awaits nor runs in a thread" in notice.message
    assert "map_sync" in notice.message


@pytest.mark.anyio
async def test_a_running_batch_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag, "INTERVAL_S", 0.001)
    async with AgentBatch(cs=1) as batch:
        assert batch.statistics().loop_lag is None
        with anyio.fail_after(10):
            while batch.statistics().loop_lag_last_minute is None:  # noqa: ASYNC110 - the machine's clock sets no event
                await anyio.sleep(0.001)
    found = batch.statistics().loop_lag
    assert found is not None
    assert 0 <= found.mean_s <= found.worst_s


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_virtual_clock_is_left_alone(backend: Any) -> None:
    async def main() -> None:
        async with AgentBatch(cs=1) as batch:
            assert not lag.keeps_wall_time()
            await anyio.sleep(3600)
            assert batch.statistics().loop_lag is None

    async def stuck() -> None:
        async with AgentBatch(cs=1):
            await anyio.Event().wait()

    virtual_clock.run(main, backend=backend)
    with pytest.raises(virtual_clock.ClockDeadlock, match="stuck"):
        virtual_clock.run(stuck, backend=backend)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_machines_clock_is_known(backend: str) -> None:
    async def main() -> bool:
        return lag.keeps_wall_time()

    assert anyio.run(main, backend=backend)


def test_uvloop_keeps_the_machines_clock() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def main() -> bool:
        return lag.keeps_wall_time()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(main())
