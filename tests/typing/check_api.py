"""What a type checker must see in the public API: `make check` runs mypy --strict on this file; it is never executed.

A `type: ignore` below is a misuse that must be reported: with the error gone, the ignore is unused and mypy fails.
"""

from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, assert_type

import openai
from openai.types.chat import ChatCompletion, ChatCompletionChunk

import agentbatch
from agentbatch import (
    AgentBatch,
    BatchStatistics,
    ChildTrajectory,
    Completed,
    Failed,
    LoopLag,
    Result,
    RetryPolicy,
    SyncAgentBatch,
    SyncTrajectory,
    SyncTrajectoryClient,
    Timing,
    Trajectory,
    TrajectoryClient,
    Usage,
)
from agentbatch.events import Event, TurnEnded


@dataclass
class Task:
    id: int


async def solve(trajectory: Trajectory, task: Task) -> str:
    return f"{trajectory.key} {task.id}"


async def map_keeps_the_types_of_task_and_value(batch: AgentBatch, tasks: list[Task]) -> None:
    results = await batch.map(solve, tasks, key=lambda task: task.id)
    assert_type(results, list[Completed[str] | Failed])
    await batch.map(solve, (task for task in tasks))
    await batch.map(solve, [1, 2])  # type: ignore[arg-type]
    await batch.map(solve, tasks, key=lambda task: task.name)  # type: ignore[attr-defined]
    await batch.map(lambda trajectory, task: task.id, tasks)  # type: ignore[arg-type, return-value]


def ok_tells_the_two_apart(result: Result[str]) -> str:
    assert_type(result.key, str)
    assert_type(result.label, str)
    assert_type(result.timing, Timing)
    assert_type(result.usage, Usage)
    if result.ok:
        assert_type(result, Completed[str])
        return result.value
    assert_type(result, Failed)
    assert_type(result.error, BaseException)
    result.value  # type: ignore[attr-defined]  # noqa: B018
    return str(result.error)


def match_is_exhaustive(result: Result[int]) -> int:
    match result:
        case Completed(value=value):
            return assert_type(value, int)
        case Failed(error=error):
            raise assert_type(error, BaseException)


def a_completed_result_is_covariant(result: Completed[bool]) -> Completed[int]:
    return result


async def a_harness_that_owns_its_loop(batch: AgentBatch) -> None:
    async with batch.trajectory(("bird", 7)) as trajectory:
        assert_type(trajectory, Trajectory)
        assert_type(trajectory.label, str)
        async with trajectory.environment("web"):
            pass
        trajectory.environment(3)  # type: ignore[arg-type]
        trajectory.cancel("enough")
    assert_type(batch.statistics(), BatchStatistics)
    assert_type(agentbatch.current_trajectory(), Trajectory | None)


async def results_as_they_end(batch: AgentBatch, tasks: list[Task]) -> None:
    async with batch.as_completed(solve, tasks, key=lambda task: task.id) as results:
        async for result in results:
            assert_type(result, Completed[str] | Failed)
            assert_type(result.timed_out, bool)
    batch.as_completed(solve, [1])  # type: ignore[arg-type]
    batch.resize(cs=3, ce={"web": 2})
    batch.resize(3)  # type: ignore[call-arg]
    batch.drain()


async def children_and_processes(trajectory: Trajectory) -> None:
    assert_type(trajectory.child("judge"), ChildTrajectory)
    parent: Trajectory = trajectory.child("judge").child("deeper")
    assert_type(parent.client, TrajectoryClient)
    assert_type(await trajectory.run_process(["true"], timeout_s=3.0), CompletedProcess[bytes])
    await trajectory.run_process(3)  # type: ignore[arg-type]


async def tools(trajectory: Trajectory) -> None:
    assert_type(await trajectory.act(len, "abc"), Any)
    assert_type(await agentbatch.act(solve, trajectory, Task(1), resource="web"), Any)
    await trajectory.act("not callable")  # type: ignore[arg-type]
    async with agentbatch.environment():
        pass


async def the_client_is_the_sdks(trajectory: Trajectory) -> None:
    client = trajectory.client
    assert_type(client, TrajectoryClient)
    sdk: openai.AsyncOpenAI = client
    reply = await sdk.chat.completions.create(model="m", messages=[])
    assert_type(reply, ChatCompletion)
    stream = await client.chat.completions.create(model="m", messages=[], stream=True)
    assert_type(stream, openai.AsyncStream[ChatCompletionChunk])
    assert_type(client.with_options(timeout=3.0), TrajectoryClient)
    assert_type(client.copy(), TrajectoryClient)


def solve_sync(trajectory: SyncTrajectory, task: Task) -> str:
    reply = trajectory.client.chat.completions.create(model="m", messages=[])
    assert_type(reply, ChatCompletion)
    assert_type(trajectory.client.with_options(timeout=3.0), SyncTrajectoryClient)
    sdk: openai.OpenAI = trajectory.client
    with trajectory.environment("web"), agentbatch.environment_sync():
        assert_type(trajectory.act(len, "abc"), Any)
    assert_type(trajectory.bind(len)("abc"), int)
    trajectory.bind(len)(3)  # type: ignore[arg-type]
    return str(sdk)


async def map_sync_keeps_the_types(batch: AgentBatch, tasks: list[Task]) -> None:
    assert_type(await batch.map_sync(solve_sync, tasks, key=lambda task: task.id), list[Completed[str] | Failed])
    await batch.map_sync(solve_sync, [1, 2])  # type: ignore[arg-type]


def a_program_without_event_loop(tasks: list[Task]) -> None:
    with SyncAgentBatch(cs=3, ce={"default": 2}, base_url="http://a/v1") as batch:
        assert_type(batch.map(solve_sync, tasks, key=lambda task: task.id), list[Completed[str] | Failed])
        with batch.trajectory("k") as trajectory:
            assert_type(trajectory, SyncTrajectory)
        lag: LoopLag | None = batch.statistics().loop_lag
        assert_type(lag, LoopLag | None)
    SyncAgentBatch(cs="3")  # type: ignore[arg-type]
    SyncAgentBatch(cs=3, speed=1)  # type: ignore[call-arg]


def options() -> None:
    AgentBatch(cs=3, ce={"default": 2, "web": 1}, env_policy="fcfs", base_url=["http://a/v1", "http://b/v1"])
    AgentBatch(cs=3, env_policy="lifo")  # type: ignore[arg-type]
    AgentBatch(cs=3, env_policy="depth", band_s="auto", admission="longest-first", profile={"a": 3.0})
    SyncAgentBatch(cs=3, env_policy="slow-step", admission="longest-first", profile=Path("run.jsonl"))
    AgentBatch(cs=3, env_policy="depth", band_s=None)
    AgentBatch(cs=3, band_s="wide")  # type: ignore[arg-type]
    AgentBatch(cs=3, admission="shortest-first")  # type: ignore[arg-type]
    AgentBatch(3, 2, "http://a/v1")  # type: ignore[call-arg]
    AgentBatch(cs="3")  # type: ignore[arg-type]
    AgentBatch(cs=3, retries=RetryPolicy(attempts=3), environment_timeout_s={"default": 3}, routing="random")
    AgentBatch(cs=3, routing="nearest")  # type: ignore[arg-type]
    RetryPolicy(3)  # type: ignore[call-arg]


def a_hook_takes_every_event(event: Event) -> None:
    if isinstance(event, TurnEnded):
        assert_type(event.first_byte_s, float | None)
    AgentBatch(cs=1, on_event=a_hook_takes_every_event)


def records_are_frozen(timing: Timing, failed: Failed) -> None:
    timing.ended_s = 0.0  # type: ignore[misc]
    failed.error = ValueError()  # type: ignore[misc]
