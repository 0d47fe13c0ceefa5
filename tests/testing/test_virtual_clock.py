"""The virtual clock on both backends: when time moves, when it does not, and when nothing ever will."""

import asyncio
import math
from typing import Any

import anyio
import pytest

from agentbatch.errors import UsageError
from agentbatch.testing import ClockDeadlock, VirtualClockLoop, virtual_clock

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])
DAY_S = 86_400.0


@BACKENDS
def test_sleeps_and_time_outs_follow_the_clock(backend: Any) -> None:
    async def main(first_s: float) -> list[float]:
        times = [anyio.current_time()]
        await anyio.sleep(first_s)
        times.append(anyio.current_time())
        with anyio.move_on_after(3 * DAY_S) as scope:
            await anyio.sleep_forever()
        assert scope.cancelled_caught
        times.append(anyio.current_time())
        with pytest.raises(TimeoutError):
            with anyio.fail_after(0.5):
                await anyio.Event().wait()
        times.append(anyio.current_time())
        return times

    assert virtual_clock.run(main, 10.0, backend=backend) == [0, 10, 3 * DAY_S + 10, 3 * DAY_S + 10.5]


@BACKENDS
def test_tasks_interleave_by_time(backend: Any) -> None:
    seen = []

    async def tick(name: str, period_s: float, times: int) -> None:
        for _ in range(times):
            await anyio.sleep(period_s)
            seen.append((anyio.current_time(), name))

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tick, "slow", 2.5, 3)
            tasks.start_soon(tick, "quick", 1.0, 6)

    virtual_clock.run(main, backend=backend)
    times = [at for at, _ in seen]
    assert times == [1.0, 2.0, 2.5, 3.0, 4.0, 5.0, 5.0, 6.0, 7.5]
    assert [name for _, name in seen[:3]] == ["quick", "quick", "slow"]


def test_asyncio_reads_the_very_time_a_timer_was_set_for() -> None:
    """now + (when - now) is not always `when` in floats, and a job on a band's edge must not fall before it."""
    now, when = 1.02, 6.31
    assert now + (when - now) != when

    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        times: list[float] = []
        for at in (now, when):
            loop.call_at(at, lambda: times.append(loop.time()))
        await asyncio.sleep(20)
        return times

    assert virtual_clock.run(main) == [now, when]


def test_asyncio_itself_follows_the_clock() -> None:
    async def main() -> tuple[float, list[str]]:
        loop = asyncio.get_running_loop()
        calls: list[str] = []
        loop.call_later(2, calls.append, "later")
        loop.call_at(1, calls.append, "at")
        loop.call_later(1.5, calls.append, "cancelled").cancel()
        loop.call_at(math.inf, calls.append, "never").cancel()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 60)
        async with asyncio.timeout(60):
            await asyncio.sleep(59)
        return loop.time(), calls

    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        assert runner.run(main()) == (119.0, ["at", "later"])


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": VirtualClockLoop}


@pytest.mark.anyio
async def test_the_loop_serves_anyio_tests() -> None:
    await anyio.sleep(DAY_S)
    assert anyio.current_time() == DAY_S


@BACKENDS
def test_a_deadlock_is_named_and_cleaned_up(backend: Any) -> None:
    cleaned = []

    async def waits_for_nobody() -> None:
        try:
            await anyio.Event().wait()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(2)  # time still moves
                cleaned.append(anyio.current_time())

    async def main() -> None:
        await anyio.sleep(3)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(waits_for_nobody, name="stray")
            tasks.start_soon(anyio.sleep_forever)

    with pytest.raises(ClockDeadlock, match=r"at 3 s .*stray \(.*test_virtual_clock\.py:\d+\)"):
        virtual_clock.run(main, backend=backend)
    assert cleaned == [5.0]


@BACKENDS
def test_a_deadlock_is_told_even_if_main_hides_its_cancellation(backend: Any) -> None:
    async def main() -> None:
        try:
            await anyio.sleep_forever()
        except BaseException as error:
            raise ValueError("something else") from error

    with pytest.raises(ClockDeadlock):
        virtual_clock.run(main, backend=backend)


def test_a_deadlock_lists_a_few_tasks_only() -> None:
    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(100):
                tasks.start_soon(anyio.sleep_forever)

    with pytest.raises(ClockDeadlock, match=r"and 93 more$"):
        virtual_clock.run(main)


@BACKENDS
def test_waiting_until_all_are_blocked_is_no_deadlock(backend: Any) -> None:
    async def main() -> float:
        async with anyio.create_task_group() as tasks:
            event = anyio.Event()
            tasks.start_soon(event.wait)
            await anyio.wait_all_tasks_blocked()
            event.set()
        return anyio.current_time()

    assert virtual_clock.run(main, backend=backend) < 1  # anyio's asyncio side polls with short sleeps


@BACKENDS
def test_results_and_errors_come_back(backend: Any) -> None:
    async def main(error: Exception | None) -> str:
        await anyio.sleep(1)
        if error:
            raise error
        return "done"

    assert virtual_clock.run(main, None, backend=backend) == "done"
    with pytest.raises(LookupError, match="mine"):
        virtual_clock.run(main, LookupError("mine"), backend=backend)


@BACKENDS
@pytest.mark.parametrize(
    "grace", [{"io_grace_s": -1.0}, {"io_grace_s": math.inf}, {"thread_grace_s": -1.0}, {"thread_grace_s": math.nan}]
)
def test_graces_out_of_range(backend: Any, grace: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(grace))} must be"):
        virtual_clock.run(anyio.sleep, 1, backend=backend, **grace)


def test_unknown_backend() -> None:
    with pytest.raises(UsageError, match="'asyncio' or 'trio'"):
        virtual_clock.run(anyio.sleep, 1, backend="curio")  # type: ignore[arg-type]
