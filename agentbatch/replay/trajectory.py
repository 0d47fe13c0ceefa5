"""Replays one recorded trajectory through the runtime: its turns, its waits, its environment stages (spec §7)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from openai import AsyncStream

from agentbatch.replay.chunk import ReplyChunk
from agentbatch.replay.conversation import Conversation
from agentbatch.replay.lengths import Lengths
from agentbatch.replay.replies import Replies
from agentbatch.replay.routes import Routes
from agentbatch.replay.text import Calibration
from agentbatch.runtime.trajectory import Trajectory
from agentbatch.trace.workload import TraceTrajectory, TraceTurn


@dataclass(frozen=True, kw_only=True, slots=True)
class TrajectoryReplay:
    """Everything that the replays of one run share."""

    model: str
    calibration: Calibration
    exact: bool
    """Ask for exactly the recorded number of output tokens (`ignore_eos`)."""
    seed: int
    routes: Routes
    inference_only: bool
    lengths: Lengths = field(default_factory=Lengths)
    replies: Replies = field(default_factory=Replies)

    async def run(self, trajectory: Trajectory, recorded: TraceTrajectory) -> int:
        """Replay `recorded`; returns how many turns it took."""
        contexts: dict[str, Conversation] = {}
        if recorded.env_prepare_s is not None and not self.inference_only:
            await self._stage(trajectory, self.routes.prepare, recorded.env_prepare_s)
        for left, turn in zip(range(len(recorded.turns) - 1, -1, -1), recorded.turns, strict=True):
            role = turn.role or ""
            if role not in contexts:
                contexts[role] = self._context(recorded, role)
            await self._infer(trajectory, contexts[role], turn)
            if self.inference_only:
                continue
            if turn.env_s is not None:
                await self._stage(trajectory, self.routes.of(turn), turn.env_s)
            if turn.user_s is not None and left:  # it delays the next turn, if any
                await trajectory.clock.sleep(turn.user_s)
        self.lengths.restarts += sum(context.restarts for context in contexts.values())
        return len(recorded.turns)

    def _context(self, recorded: TraceTrajectory, role: str) -> Conversation:
        return Conversation(
            f"{recorded.id}/{role}",
            f"{recorded.domain}/{role}",
            recorded.system_tokens + recorded.tool_tokens,
            self.calibration,
            self.seed,
        )

    async def _stage(self, trajectory: Trajectory, resource: str, seconds: float) -> None:
        """Hold a slot for as long as recorded; nothing is executed."""
        async with trajectory.environment(resource):
            await trajectory.clock.sleep(seconds)

    async def _infer(self, trajectory: Trajectory, context: Conversation, turn: TraceTurn) -> None:
        wanted = max(1, turn.output_tokens)
        messages = context.grow_to(turn.prompt_tokens)
        content, prompt, output = await self._complete(trajectory, messages, wanted)
        context.add_reply(content, prompt, output, turn.output_tokens)
        self.replies.add(trajectory.key, content)
        self.lengths.add(
            recorded=(turn.prompt_tokens, turn.output_tokens),
            replayed=(turn.prompt_tokens if prompt is None else prompt, wanted if output is None else output),
        )

    async def _complete(
        self, trajectory: Trajectory, messages: list[dict[str, Any]], wanted: int
    ) -> tuple[str, int | None, int | None]:
        """Generate `wanted` tokens; return the text and the server's own counts, where it gives them."""
        body = {
            "model": self.model,
            "messages": messages,
            "max_tokens": wanted,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True},
            **({"ignore_eos": True} if self.exact else {}),
        }
        # post() and not create(): that walks every message of the prompt through its typed dictionaries, which takes
        # 7 ms at 80 messages and would make a replay of long trajectories wait for itself
        stream: AsyncStream[ReplyChunk] = await trajectory.client.post(
            "/chat/completions", body=body, cast_to=ReplyChunk, stream=True, stream_cls=AsyncStream[ReplyChunk]
        )
        pieces: list[str] = []
        usage = None
        async for chunk in stream:
            usage = chunk.usage or usage
            pieces.append(chunk.text)
        if usage is None:
            return "".join(pieces), None, None
        return "".join(pieces), usage.get("prompt_tokens"), usage.get("completion_tokens")
