"""`act`: every kind of tool, on the right side of the event loop, in one slot, exactly once."""

import contextvars
import functools
import threading
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import pytest
from runtime_helpers import assert_nothing_held, jobs

import agentbatch
from agentbatch import AgentBatch, BatchClosed, SlotConflict
from agentbatch.events import Event

pytestmark = pytest.mark.anyio
HERE = threading.get_ident


async def coroutine(a: int, b: int = 1) -> tuple[int, int]:
    await anyio.lowlevel.checkpoint()
    return a + b, HERE()


def plain(a: int, b: int = 1) -> tuple[int, int]:
    return a + b, HERE()


class Tools:
    async def method(self, a: int) -> tuple[int, int]:
        return await coroutine(a)

    @staticmethod
    def static(a: int) -> tuple[int, int]:
        return plain(a)


class AsyncCallable:
    async def __call__(self, a: int) -> tuple[int, int]:
        return await coroutine(a)


class PlainCallable:
    def __call__(self, a: int) -> tuple[int, int]:
        return plain(a)


def decorated(a: int) -> Any:
    """A plain function that gives a coroutine, as decorators often do."""
    return coroutine(a)


ON_THE_LOOP = [
    coroutine, functools.partial(coroutine, b=1), functools.partial(functools.partial(coroutine), b=1), Tools().method,
    functools.partial(Tools().method), AsyncCallable(), functools.partial(AsyncCallable()), decorated,
]  # fmt: skip
IN_A_THREAD = [plain, functools.partial(plain, b=1), Tools.static, PlainCallable(), lambda a: (a + 1, HERE())]


async def test_every_kind_of_tool_runs_where_it_should_and_is_one_job() -> None:
    events: list[Event] = []
    async with AgentBatch(cs=1, ce=1, on_event=events.append) as batch, batch.trajectory("t") as trajectory:
        for tool in ON_THE_LOOP:
            assert await trajectory.act(tool, 4) == (5, HERE()), tool
        for tool in IN_A_THREAD:
            value, thread = await trajectory.act(tool, 4)
            assert value == 5
            assert thread != HERE(), tool
        assert batch.statistics().jobs_completed == len(ON_THE_LOOP) + len(IN_A_THREAD)
        assert trajectory.usage.environment_jobs == len(ON_THE_LOOP) + len(IN_A_THREAD)
        assert_nothing_left(batch)
    assert {job.outcome for job in jobs(events)} == {"ok"}


def assert_nothing_left(batch: AgentBatch) -> None:
    gate = batch.statistics().environment["default"]
    assert (gate.held, gate.waiting) == (0, 0)


@pytest.mark.parametrize("threaded", [False, True])
async def test_a_tool_that_raises_is_not_tried_again(threaded: bool) -> None:
    events: list[Event] = []
    calls = 0

    def fail(error: Exception) -> None:
        nonlocal calls
        calls += 1
        raise error

    async def fail_later(error: Exception) -> None:
        fail(error)

    async with AgentBatch(cs=1, ce=1, on_event=events.append) as batch, batch.trajectory("t") as trajectory:
        for error in (ValueError("mine"), TimeoutError("slow"), ConnectionError("reset")):
            with pytest.raises(type(error), match=str(error)):
                await trajectory.act(fail if threaded else fail_later, error)
        assert_nothing_left(batch)
    assert calls == 3
    assert [job.outcome for job in jobs(events)] == ["failed"] * 3
    assert jobs(events)[0].error == "ValueError: mine"


async def test_a_threads_tool_knows_its_trajectory_and_the_callers_context() -> None:
    mine: contextvars.ContextVar[str] = contextvars.ContextVar("mine")

    def tool() -> Any:
        return agentbatch.current_trajectory(), mine.get()

    async with AgentBatch(cs=1, ce=1) as batch:
        async with batch.trajectory("t") as trajectory:
            mine.set("set")
            assert await trajectory.act(tool) == (trajectory, "set")
            assert await agentbatch.act(tool) == (trajectory, "set")
        assert agentbatch.current_trajectory() is None


async def test_a_tool_in_a_thread_may_call_another_tool_in_a_thread() -> None:
    """ha-mcp#2369: a nested tool call dead-locked at CE = 1; here the inner one needs a second thread, not a slot."""
    events: list[Event] = []

    async with AgentBatch(cs=1, ce=1, on_event=events.append) as batch, batch.trajectory("t") as trajectory:

        def deep(level: int) -> int:
            if level == 0:
                return 1
            return 1 + anyio.from_thread.run(trajectory.act, deep, level - 1)

        with anyio.fail_after(10):
            assert await trajectory.act(deep, 5) == 6
        assert_nothing_left(batch)
    [job] = jobs(events)
    assert job.operations == 6


async def test_parallel_tools_inside_one_job_share_its_slot_and_really_run_in_parallel() -> None:
    together = threading.Barrier(5, timeout=10)
    async with AgentBatch(cs=1, ce=1) as batch, batch.trajectory("t") as trajectory:
        async with trajectory.environment():
            async with anyio.create_task_group() as group:
                for _ in range(5):
                    group.start_soon(trajectory.act, together.wait)
            assert batch.statistics().environment["default"].held == 1
        assert batch.statistics().jobs_completed == 1


async def test_parallel_tools_outside_a_job_are_jobs_of_their_own_within_the_limit() -> None:
    lock = threading.Lock()
    running = peak = 0

    def tool() -> None:
        nonlocal running, peak
        with lock:
            running += 1
            peak = max(peak, running)
        threading.Event().wait(0.01)
        with lock:
            running -= 1

    async with AgentBatch(cs=1, ce=3) as batch, batch.trajectory("t") as trajectory:
        async with anyio.create_task_group() as group:
            for _ in range(12):
                group.start_soon(trajectory.act, tool)
        assert batch.statistics().jobs_completed == 12
        assert_nothing_left(batch)
    assert 1 <= peak <= 3


async def test_another_resource_from_within_a_threads_tool_is_an_error_at_once() -> None:
    """k8s_sandbox#126, inspect_ai#2405: clear error, no waiting."""
    async with AgentBatch(cs=1, ce={"default": 1, "web": 1}) as batch, batch.trajectory("t") as trajectory:

        async def other() -> None:
            await trajectory.act(plain, 1, resource="web")

        with pytest.raises(SlotConflict, match="leave the first block"), anyio.fail_after(10):
            await trajectory.act(functools.partial(anyio.from_thread.run, other))
        assert_nothing_left(batch)


async def test_a_thread_that_cannot_be_started_is_the_affair_of_its_caller_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A machine that is out of threads says so with a RuntimeError: it ended the whole batch."""

    async def no_thread(*args: object, **options: object) -> None:
        raise RuntimeError("can't start new thread")

    async def solve(trajectory: Any, n: int) -> Any:
        with monkeypatch.context() as patch:
            if n == 1:
                patch.setattr(anyio.to_thread, "run_sync", no_thread)
            return await trajectory.act(plain, n)

    async with AgentBatch(cs=1, ce=1) as batch:
        results = await batch.map(solve, range(3))
        assert [result.ok for result in results] == [True, False, True]
        assert isinstance(results[1].error, RuntimeError)
        assert batch.statistics().environment["default"].held == 0


async def test_a_tool_whose_slot_comes_after_the_end_of_the_batch_says_so_and_gives_it_back() -> None:
    errors: list[BaseException] = []
    release = anyio.Event()

    async def outlive(batch: AgentBatch, key: str, tool: Any) -> None:
        try:
            async with batch.trajectory(key) as trajectory:
                await trajectory.act(tool)
        except BatchClosed as error:
            errors.append(error)

    async with anyio.create_task_group() as group:
        async with AgentBatch(cs=2, ce=1) as batch:
            group.start_soon(outlive, batch, "holds", release.wait)
            await anyio.wait_all_tasks_blocked()
            group.start_soon(outlive, batch, "waits", HERE)
            await anyio.wait_all_tasks_blocked()
        release.set()
    assert len(errors) == 1
    assert_nothing_held(batch)
