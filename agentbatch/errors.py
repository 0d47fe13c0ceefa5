"""Errors that say whose fault it is and how to mend it.

Every error this package raises on purpose derives from `AgentBatchError`; foreign errors are chained with `from`.
"""

from __future__ import annotations


class AgentBatchError(Exception):
    """Base of every error that agentbatch raises on purpose."""


class UsageError(AgentBatchError, ValueError):
    """The caller asked for something that cannot be: a limit below 1, an unknown resource, a duplicate key."""


class BatchClosed(AgentBatchError, RuntimeError):
    """The batch was used before `async with` entered it or after it ended."""


class TrajectoryClosed(AgentBatchError, RuntimeError):
    """A trajectory was used after its task had returned."""


class TrajectoryCancelled(AgentBatchError):
    """A trajectory was cancelled; stands as the error of its `Failed` result."""


class BatchDrained(TrajectoryCancelled):
    """The batch drains: this trajectory was never admitted; stands as the error of its `Failed` result."""


class TimedOut(AgentBatchError, TimeoutError):
    """Something ran longer than the batch allows; it is marked in the result, since it can move a score."""


class TurnTimeout(TimedOut):
    """A model call took longer than `turn_timeout_s`, retries and back-off included."""


class EnvironmentTimeout(TimedOut):
    """An environment job held its slot for longer than its time-out; waiting for the slot does not count.

    Attributes:
        stdout, stderr: what the command of `run_process` had written until then.
    """

    stdout: bytes = b""
    stderr: bytes = b""


class TrajectoryTimeout(TimedOut):
    """A trajectory was active for longer than `trajectory_timeout_s`; waiting for admission does not count."""


class SlotConflict(AgentBatchError, RuntimeError):
    """A task that holds one slot asked for another in a way that could dead-lock."""


class WrongThread(AgentBatchError, RuntimeError):
    """A synchronous part was used on the event loop's thread, or an asynchronous one from elsewhere."""


class StartUpError(AgentBatchError, OSError):
    """The machine cannot honour what was asked: too few file descriptors, a port in use, an unreachable URL."""


class TraceError(AgentBatchError, ValueError):
    """A trace or run file does not read: names the file, the line and the field."""
