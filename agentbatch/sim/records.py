"""What goes into a worker and what comes out: requests, configuration, events, statistics. All frozen.

Times end in `_s` and are seconds on the caller's clock, which only moves forward.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from agentbatch.errors import UsageError
from agentbatch.policy.routing_prefix import label_capacity
from agentbatch.sim.cost import StepCost
from agentbatch.sim.radix import Piece
from agentbatch.sim.reserve import PAGE_TOKENS
from agentbatch.sim.states import HELD_SLOTS, StateMode
from agentbatch.sim.transcript import Prefix

POLICIES = ("fcfs", "lpm", "dfs-weight", "routing-prefix")
"""Names accepted as `schedule_policy`; what they do is in `waiting`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One model call.

    Args:
        rid: names the request in events, `abort` and `produced`; unique among the live ones.
        prompt_tokens: >= 1.
        output_tokens: how many tokens it will generate, >= 1; known beforehand, since nothing is really
            computed.
        prompt: pieces of the prompt, for prefix reuse; together at most `prompt_tokens`. A `Prefix` of the
            conversation's `Transcript` makes a turn cost what is new in it instead of its whole prompt.
        reply: pieces that follow `prompt` once the output is there; with it at most all tokens.
        label: the trajectory's label; only the policy routing-prefix looks at it.
        max_new_tokens: the limit that the engine knows, >= `output_tokens`; None when the length is fixed
            (`ignore_eos`), so that the engine knows `output_tokens` itself.
    """

    rid: Hashable
    prompt_tokens: int
    output_tokens: int
    prompt: Sequence[Piece] = ()
    reply: Sequence[Piece] = ()
    label: str | None = None
    max_new_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.prompt_tokens < 1 or self.output_tokens < 1:
            raise UsageError(f"request {self.rid!r} needs at least one prompt and one output token; got "
                             f"{self.prompt_tokens} and {self.output_tokens}")
        if self.max_new_tokens is not None and self.max_new_tokens < self.output_tokens:
            raise UsageError(f"request {self.rid!r} has {self.output_tokens} output tokens, more than its "
                             f"max_new_tokens = {self.max_new_tokens}")
        prompt = self.prompt.tokens if isinstance(self.prompt, Prefix) else sum(tokens for _, tokens in self.prompt)
        if prompt > self.prompt_tokens:
            raise UsageError(f"request {self.rid!r}: the prompt's pieces hold {prompt} tokens, more than "
                             f"prompt_tokens = {self.prompt_tokens}")
        whole = prompt + sum(tokens for _, tokens in self.reply)
        if whole > self.prompt_tokens + self.output_tokens:
            raise UsageError(f"request {self.rid!r}: its pieces hold {whole} tokens, more than it has")


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerConfig:
    """One worker's engine: step times, pool sizes and limits.

    Args:
        cost: step times.
        kv_tokens: KV pool in tokens, >= 4 (SGLang's `max_total_num_tokens`).
        state_slots: recurrent-state pool in slots; None for a pure attention model.
        slots_per_request: S_state, by which the pool is divided to bound the running requests: 3 in SGLang's mode
            no_buffer, 5 in extra_buffer, 4 in extra_buffer_lazy.
        state_mode: where recurrent states are left, and how many slots a running request really holds.
        max_states_per_path: cap on cached states of one path, >= 1; None for no cap.
        overlap: SGLang's overlap scheduling, which extra_buffer runs with by default and no_buffer without: what a
            step gave back or left in the cache is seen one step later.
        max_running_requests: >= 1; with states, at most `state_slots // slots_per_request` are effective.
        chunked_prefill_tokens: prefill budget of one step, >= 1.
        schedule_policy: order of the waiting queue, one of `POLICIES`.
        label_capacity: C_A of routing-prefix (spec §5), >= 1; None for half as many labels again as requests may run.

    Raises:
        UsageError: a figure out of range, with what to change.
    """

    cost: StepCost
    kv_tokens: int
    state_slots: int | None = None
    slots_per_request: int = 3
    state_mode: StateMode = "no_buffer"
    max_states_per_path: int | None = 1
    overlap: bool = False
    max_running_requests: int = 1024
    chunked_prefill_tokens: int = 8192
    schedule_policy: str = "fcfs"
    label_capacity: int | None = None

    def __post_init__(self) -> None:
        for name in ("kv_tokens", "slots_per_request", "max_running_requests", "chunked_prefill_tokens"):
            least = 4 if name == "kv_tokens" else 1
            if getattr(self, name) < least:
                raise UsageError(f"{name} must be at least {least}; got {getattr(self, name)}")
        if self.max_states_per_path is not None and self.max_states_per_path < 1:
            got = self.max_states_per_path
            raise UsageError(f"max_states_per_path must be None or at least 1; got {got}")
        if self.label_capacity is not None and self.label_capacity < 1:
            raise UsageError(f"label_capacity must be None or at least 1; got {self.label_capacity}. Without labels "
                             "routing-prefix is fcfs: choose that")
        if self.state_mode not in HELD_SLOTS:
            raise UsageError(f"unknown state mode {self.state_mode!r}; known: {', '.join(HELD_SLOTS)}")
        if self.state_slots is not None and self.slots_per_request <= HELD_SLOTS[self.state_mode]:
            raise UsageError(f"slots_per_request = {self.slots_per_request} is too few for {self.state_mode}: "
                             f"a request holds {HELD_SLOTS[self.state_mode]} slots and locks another")
        if self.state_slots is not None and self.state_slots < self.slots_per_request:
            raise UsageError(f"state_slots = {self.state_slots} cannot run a single request: each takes "
                             f"slots_per_request = {self.slots_per_request}")
        if self.schedule_policy not in POLICIES:
            known = ", ".join(POLICIES)
            raise UsageError(f"unknown schedule policy {self.schedule_policy!r}; known: {known}")

    @property
    def max_running(self) -> int:
        """Requests that may run at once, the state pool considered (SGLang divides it the same way)."""
        if self.state_slots is None:
            return self.max_running_requests
        return min(self.max_running_requests, self.state_slots // self.slots_per_request)

    @property
    def labels(self) -> int:
        """C_A: the label capacity given, or what goes with the requests that may run."""
        return label_capacity(self.max_running) if self.label_capacity is None else self.label_capacity

    @property
    def longest_request(self) -> int:
        """Most tokens of prompt and output together that one request may have."""
        return self.kv_tokens - 1 - PAGE_TOKENS


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstToken:
    """A request's prefill ended and gave its first output token."""

    rid: Hashable
    at_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Finished:
    """A request's last output token came; an aborted one never gets here."""

    rid: Hashable
    at_s: float
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int


WorkerEvent = FirstToken | Finished


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerStatistics:
    """A worker at one moment; counts since the start unless a docstring says "now"."""

    waiting: int
    """Queued requests, now."""
    running: int
    """Admitted requests, prefill or decode, now."""
    peak_running: int
    kv_total: int
    kv_free: int
    """Tokens that hold nothing, now."""
    kv_evictable: int
    """Cached tokens on no running path, now; the remainder is in use."""
    states_total: int
    """0 for a pure attention model."""
    states_held: int
    """Slots taken by running requests, now."""
    states_cached: int
    """Slots with a cached state, now."""
    states_evictable: int
    """Those of them that no running request started from."""
    admitted: int
    finished: int
    aborted: int
    input_tokens: int
    """Prompt tokens of admitted requests."""
    hit_tokens: int
    """Those of them that were cached."""
    output_tokens: int
    """Output tokens of finished requests."""
    evicted_tokens: int
    evicted_states: int
    prefill_steps: int
    decode_steps: int
    retractions: int
    """Times that a running request was put back to wait because KV ran out."""
    passes: int
    """Times that the waiting queue was put in order."""
    matches: int
    """Prefix matches of waiting requests made for that."""
    labels: int
    """Labels that routing-prefix knows, now."""
    relookups: int
    """Those of its matches that a retraction made necessary."""
    lookups_avoided: int
    """Matches that it saved against matching every waiting request in every pass."""
