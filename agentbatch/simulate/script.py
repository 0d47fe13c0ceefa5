"""What one recorded trajectory does, step by step, exactly as `replay.trajectory` does it (spec §7).

Lives here: which steps there are. Must not live here: how long a step takes, or when it begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agentbatch.replay.lengths import Lengths
from agentbatch.replay.routes import Routes
from agentbatch.sim.radix import Piece
from agentbatch.sim.transcript import Prefix
from agentbatch.simulate.context import Context
from agentbatch.simulate.prefixes import SharedPrefixes
from agentbatch.trace.workload import TraceTrajectory


@dataclass(frozen=True, slots=True)
class Infer:
    """A turn: its whole prompt, the reply it is to get, and the seconds it took when recorded."""

    prompt: Prefix
    reply: Piece
    infer_s: float | None


@dataclass(frozen=True, slots=True)
class Stage:
    """An environment stage that holds a slot of `resource` for `seconds`."""

    resource: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Pause:
    """A person's wait: the admission slot is kept and no environment slot taken."""

    seconds: float


Step = Infer | Stage | Pause


@dataclass(frozen=True, kw_only=True, slots=True)
class Script:
    """Everything that the trajectories of one simulation share."""

    prefixes: SharedPrefixes
    routes: Routes
    inference_only: bool
    lengths: Lengths

    def steps(self, recorded: TraceTrajectory) -> Iterator[Step]:
        """Yield the steps of `recorded`; ask for the next once the last has ended."""
        shared_tokens = recorded.system_tokens + recorded.tool_tokens
        contexts: dict[str, Context] = {}
        if recorded.env_prepare_s is not None and not self.inference_only:
            yield Stage(self.routes.prepare, recorded.env_prepare_s)
        for left, turn in zip(range(len(recorded.turns) - 1, -1, -1), recorded.turns, strict=True):
            role = turn.role or ""
            context = contexts.get(role)
            if context is None:
                context = contexts[role] = Context(self.prefixes, recorded.domain, role, shared_tokens)
            prompt = context.grow_to(turn.prompt_tokens)
            reply = self.prefixes.fresh(max(1, turn.output_tokens))
            yield Infer(prompt, reply, turn.infer_s)
            context.add_reply(reply, turn.output_tokens)
            self.lengths.add(recorded=(turn.prompt_tokens, turn.output_tokens), replayed=(prompt.tokens, reply[1]))
            if self.inference_only:
                continue
            if turn.env_s is not None:
                yield Stage(self.routes.of(turn), turn.env_s)
            if turn.user_s is not None and left:  # it delays the next turn, if any
                yield Pause(turn.user_s)
        self.lengths.restarts += sum(context.restarts for context in contexts.values())
