"""Replays one recorded trajectory through the runtime: its turns, its waits, its environment stages (spec §7)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import openai
from openai import AsyncStream

from agentbatch.replay.conversation import Conversation
from agentbatch.replay.text import Calibration
from agentbatch.runtime.trajectory import Trajectory
from agentbatch.trace.workload import TraceTrajectory, TraceTurn


class ReplyChunk:
    __slots__ = ("text", "usage")

    def __init__(self, text, usage):
        self.text = text
        self.usage = usage

    @classmethod
    def build(cls, *, response, data):
        text = "".join([c.get("delta", {}).get("content") or "" for c in data.get("choices", ())])
        return cls(text, data.get("usage"))


@dataclass(kw_only=True)
class Lengths:
    """How close the replay came to the recorded lengths, tokens over all turns."""

    recorded_prompt: int = 0
    sent_prompt: int = 0
    recorded_output: int = 0
    generated: int = 0
    exact_refused: bool = False
    restarts: int = 0


@dataclass(frozen=True, kw_only=True)
class TrajectoryReplay:
    """Everything that the replays of one run share."""

    model: str
    calibration: Calibration
    seed: int
    resource_of: Callable[[TraceTurn], str]
    prepare: str
    inference_only: bool
    lengths: Lengths = field(default_factory=Lengths)

    async def run(self, trajectory: Trajectory, recorded: TraceTrajectory) -> int:
        """Replay `recorded`; returns how many turns it took."""
        clock = trajectory.clock
        contexts: dict[str, Conversation] = {}
        if recorded.env_prepare_s is not None and not self.inference_only:
            async with trajectory.environment(self.prepare):
                await clock.sleep(recorded.env_prepare_s)
        for turn in recorded.turns:
            role = turn.role or ""
            if role not in contexts:
                contexts[role] = Conversation(
                    f"{recorded.id}/{role}",
                    f"{recorded.domain}/{role}",
                    recorded.system_tokens + recorded.tool_tokens,
                    self.calibration,
                    self.seed,
                )
            await self._infer(trajectory, contexts[role], turn)
            if self.inference_only:
                continue
            if turn.env_s is not None:
                async with trajectory.environment(self.resource_of(turn)):
                    await clock.sleep(turn.env_s)
            if turn.user_s is not None and turn is not recorded.turns[-1]:  # it delays the next turn, if any
                await clock.sleep(turn.user_s)
        self.lengths.restarts += sum(context.restarts for context in contexts.values())
        return len(recorded.turns)

    async def _infer(self, trajectory: Trajectory, context: Conversation, turn: TraceTurn) -> None:
        wanted = max(1, turn.output_tokens)
        messages = context.grow_to(turn.prompt_tokens)
        content, prompt, output = await self._complete(trajectory, messages, wanted)
        context.add_reply(content, prompt, output, turn.output_tokens)
        lengths = self.lengths
        lengths.recorded_prompt += turn.prompt_tokens
        lengths.sent_prompt += turn.prompt_tokens if prompt is None else prompt
        lengths.recorded_output += turn.output_tokens
        lengths.generated += wanted if output is None else output

    async def _complete(
        self, trajectory: Trajectory, messages: list[dict[str, Any]], wanted: int
    ) -> tuple[str, int | None, int | None]:
        """Generate `wanted` tokens; return the text and the server's own counts, where it gives them."""
        while True:
            body = {
                "model": self.model,
                "messages": messages,
                "max_tokens": wanted,
                "temperature": 0.0,
                "stream": True,
                "stream_options": {"include_usage": True},
                **({} if self.lengths.exact_refused else {"ignore_eos": True}),
            }
            try:
                # post() and not create(): that walks every message of the prompt through its typed dictionaries, which
                # takes 7 ms at 80 messages and would make a replay of long trajectories wait for itself
                stream = await trajectory.client.post(
                    "/chat/completions",
                    body=body,
                    cast_to=ReplyChunk,
                    stream=True,
                    stream_cls=AsyncStream[ReplyChunk],
                )
            except openai.BadRequestError as error:
                if self.lengths.exact_refused or "ignore_eos" not in str(error):
                    raise
                self.lengths.exact_refused = True
                continue
            pieces: list[str] = []
            usage = None
            async for chunk in stream:
                usage = chunk.usage or usage
                pieces.append(chunk.text)
            if usage is None:
                return "".join(pieces), None, None
            return "".join(pieces), usage["prompt_tokens"], usage["completion_tokens"]
