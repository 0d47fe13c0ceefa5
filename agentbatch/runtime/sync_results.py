"""`SyncAgentBatch.as_completed`: results on their way from the event loop to the thread that reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from agentbatch.errors import BatchClosed
from agentbatch.runtime.crossed import Withdrawn, batch_gone
from agentbatch.runtime.crossing import LOOK_AGAIN_S
from agentbatch.runtime.in_thread import solve_in_thread
from agentbatch.runtime.results import Result
from agentbatch.runtime.tool import check_plain

if TYPE_CHECKING:
    from agentbatch.runtime.batch import AgentBatch
    from agentbatch.runtime.sync_trajectory import SyncTrajectory

T = TypeVar("T")
R = TypeVar("R")


@contextmanager
def results_as_completed(
    batch: AgentBatch,
    solve: Callable[[SyncTrajectory, T], R],
    tasks: list[T],
    key: Callable[[T], object] | None,
) -> Iterator[Iterator[Result[R]]]:
    """Run the tasks for a block, which reads their results; see `SyncAgentBatch.as_completed`."""
    check_plain(solve, "as_completed")
    crossing = batch.crossing
    arrivals: SimpleQueue[Any] = SimpleQueue()
    begun, ended = object(), object()

    async def run() -> None:
        try:
            async with batch.as_completed(partial(solve_in_thread, solve), tasks, key=key) as results:
                arrivals.put(begun)
                async for result in results:
                    arrivals.put(result)
        finally:
            arrivals.put(ended)

    def take() -> Any:
        while True:
            with suppress(Empty):
                return arrivals.get(timeout=LOOK_AGAIN_S)
            if crossing.closed:
                raise batch_gone()

    def read() -> Iterator[Result[R]]:
        while (result := take()) is not ended:
            yield result
        arrivals.put(ended)  # for whoever asks again

    work = crossing.start(run)
    try:
        if take() is ended:  # it could not begin
            crossing.outcome(work)
        yield read()
    except Withdrawn:
        raise batch_gone() from None
    finally:
        crossing.post(work.cancel)
        with suppress(BatchClosed):
            crossing.finish(work)
