"""The virtual clock and what it does not see: threads and sockets take real time and hold it still."""

import asyncio
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

from agentbatch.testing import VirtualClockLoop, virtual_clock

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


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
def test_a_thread_at_work_is_no_deadlock_however_short_the_grace(backend: Any) -> None:
    async def main() -> int:
        return await anyio.to_thread.run_sync(work)

    assert virtual_clock.run(main, backend=backend, thread_grace_s=0.0) == work()


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
def test_pending_io_is_no_deadlock(backend: Any) -> None:
    async def main() -> bytes:
        feeder = threading.Thread(target=feed)
        feeder.start()
        await anyio.wait_readable(here)
        feeder.join()
        return here.recv(5)

    def feed() -> None:
        for _ in range(20):  # long enough for the loop to find nothing to do
            work()
        there.sendall(b"hello")

    here, there = socket.socketpair()
    with here, there:
        assert virtual_clock.run(main, backend=backend) == b"hello"


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
