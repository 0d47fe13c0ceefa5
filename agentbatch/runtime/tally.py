"""What one trajectory has used: tokens, turns, jobs and seconds; a child's counts for its parent as well."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentbatch.runtime.failure import is_timeout
from agentbatch.runtime.results import Usage

if TYPE_CHECKING:
    from agentbatch.runtime.gate import Ticket
    from agentbatch.runtime.turn import Turn


class Tally:
    """Adds up turns and jobs as they end.

    Args:
        outer: the parent's, which counts everything that this one does.
    """

    __slots__ = ("_used", "jobs_open", "outer", "spent")

    def __init__(self, outer: Tally | None = None) -> None:
        self.outer = outer
        self.jobs_open = 0
        """Jobs that hold a slot."""
        self.spent = dict.fromkeys(("inference_s", "environment_s", "environment_wait_s"), 0.0)
        self._used = dict.fromkeys(Usage.__dataclass_fields__, 0)

    @property
    def usage(self) -> Usage:
        """Tokens, turns and jobs so far."""
        return Usage(**self._used)

    def turn_ended(self, turn: Turn, seconds: float, error: BaseException | None) -> None:
        """Count a turn; the tokens of one that failed are not known."""
        used = self._used
        self.spent["inference_s"] += seconds
        if error is None:
            used["turns"] += 1
            used["turns_without_usage"] += turn.prompt_tokens is None
            used["prompt_tokens"] += turn.prompt_tokens or 0
            used["cached_tokens"] += turn.cached_tokens or 0
            used["output_tokens"] += turn.output_tokens or 0
        else:
            used["timeouts"] += is_timeout(error)
        if self.outer is not None:
            self.outer.turn_ended(turn, seconds, error)

    def attempt_failed(self) -> None:
        """Count a failed attempt of a turn."""
        self._used["attempts_failed"] += 1
        if self.outer is not None:
            self.outer.attempt_failed()

    def job_granted(self) -> None:
        """Count a job that holds its slot."""
        self.jobs_open += 1
        if self.outer is not None:
            self.outer.job_granted()

    def job_ended(self, ticket: Ticket, ended_s: float) -> None:
        """Count a job that gave its slot back, or withdrew before it had one."""
        spent = self.spent
        if ticket.granted_s is None:
            spent["environment_wait_s"] += ended_s - ticket.asked_s
        else:
            spent["environment_wait_s"] += ticket.granted_s - ticket.asked_s
            spent["environment_s"] += ended_s - ticket.granted_s
            self.jobs_open -= 1
            self._used["environment_jobs"] += 1
        if self.outer is not None:
            self.outer.job_ended(ticket, ended_s)

    def timed_out(self) -> None:
        """Count a time-out of a job, when it strikes, or of the trajectory."""
        self._used["timeouts"] += 1
        if self.outer is not None:
            self.outer.timed_out()
