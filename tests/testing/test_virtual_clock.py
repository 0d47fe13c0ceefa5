"""The virtual clock on both backends: when time moves, when it does not, and when nothing ever will."""

import asyncio
import math
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest
from anyio.abc import SocketAttribute, SocketStream

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


def work() -> int:
    return sum(range(300_000))


@BACKENDS
def test_a_thread_takes_no_virtual_time(backend: Any) -> None:
    async def main() -> float:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.sleep, 0.001)
            for _ in range(5):
                assert await anyio.to_thread.run_sync(work) == work()
            now = anyio.current_time()
        await anyio.to_thread.run_sync(work)  # and without a timer it is no deadlock
        return now

    assert virtual_clock.run(main, backend=backend) == 0.0


@BACKENDS
def test_time_moves_again_after_a_thread_has_ended(backend: Any) -> None:
    async def main() -> float:
        await anyio.to_thread.run_sync(work)
        await anyio.sleep(5)
        return anyio.current_time()

    assert virtual_clock.run(main, backend=backend) == 5.0


@BACKENDS
def test_a_stuck_thread_is_timed_out_given_a_finite_grace(backend: Any) -> None:
    """Case 10, miles#1012: a hung tool held its slot for hours; its time-out must be testable."""
    stuck = threading.Event()

    async def main() -> float:
        try:
            with anyio.move_on_after(7.5 * 3600) as scope:
                await anyio.to_thread.run_sync(stuck.wait, abandon_on_cancel=True)
            assert scope.cancelled_caught
            return anyio.current_time()
        finally:
            stuck.set()

    assert virtual_clock.run(main, backend=backend, thread_grace_s=0.01) == 7.5 * 3600


@BACKENDS
def test_a_thread_may_wait_for_virtual_time_given_a_finite_grace(backend: Any) -> None:
    async def main() -> float:
        await anyio.to_thread.run_sync(anyio.from_thread.run, anyio.sleep, 60)
        return anyio.current_time()

    assert virtual_clock.run(main, backend=backend, thread_grace_s=0.01) == 60.0


def test_executors_hold_the_clock_too() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        timer = loop.call_later(0.001, int)
        assert await loop.run_in_executor(None, work) == work()
        with ThreadPoolExecutor(1) as pool:
            assert await loop.run_in_executor(pool, work) == work()
        timer.cancel()
        assert await loop.run_in_executor(None, int, "7") == 7
        return loop.time()

    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        assert runner.run(main()) == 0.0


def test_a_thread_outside_may_wake_the_loop() -> None:
    async def main() -> str:
        loop = asyncio.get_running_loop()
        woken = loop.create_future()
        thread = threading.Thread(target=loop.call_soon_threadsafe, args=(woken.set_result, "woken"))
        job = loop.run_in_executor(None, thread.start)
        answer: str = await woken
        await job
        thread.join()
        return answer

    assert virtual_clock.run(main, io_grace_s=1.0) == "woken"


@asynccontextmanager
async def slow_echo(delay_s: float) -> Any:
    """A TCP server that answers after `delay_s` of virtual time."""

    async def serve(stream: SocketStream) -> None:
        async with stream:
            async for data in stream:
                await anyio.sleep(delay_s)
                await stream.send(data)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        yield listener.extra(SocketAttribute.local_port)
        tasks.cancel_scope.cancel()


@BACKENDS
def test_sockets_within_the_process_are_served_before_time_moves(backend: Any) -> None:
    async def main() -> float:
        async with slow_echo(3600.0) as port, await anyio.connect_tcp("127.0.0.1", port) as stream:
            for word in (b"one", b"two"):
                with anyio.fail_after(3601):
                    await stream.send(word)
                    assert await stream.receive() == word
            return anyio.current_time()

    assert virtual_clock.run(main, backend=backend) == 7200.0


@BACKENDS
def test_io_from_outside_is_awaited_for_its_grace(backend: Any) -> None:
    """A socket fed by another thread: with a grace, the answer comes before the time-out does."""

    async def main() -> bytes:
        feeder = threading.Thread(target=there.sendall, args=(b"hello",))
        feeder.start()
        with anyio.fail_after(0.1):
            await anyio.wait_readable(here)
        feeder.join()
        return here.recv(5)

    here, there = socket.socketpair()
    with here, there:
        assert virtual_clock.run(main, backend=backend, io_grace_s=5.0) == b"hello"


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
