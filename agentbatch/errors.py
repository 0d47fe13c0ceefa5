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


class SlotConflict(AgentBatchError, RuntimeError):
    """A task that holds one slot asked for another in a way that could dead-lock."""


class StartUpError(AgentBatchError, OSError):
    """The machine cannot honour what was asked: too few file descriptors, a port in use, an unreachable URL."""


class TraceError(AgentBatchError, ValueError):
    """A trace or run file does not read: names the file, the line and the field."""
