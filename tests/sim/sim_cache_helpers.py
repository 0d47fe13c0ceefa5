"""One request through a `PrefixCache`, without a worker around it."""

from collections.abc import Sequence

from agentbatch.sim.cache import Lease, PrefixCache
from agentbatch.sim.match import Sought
from agentbatch.sim.radix import Piece
from agentbatch.sim.states import StateMode


def cache(
    *, kv_tokens: int = 100_000, state_slots: int | None = 30, mode: StateMode = "no_buffer", cap: int | None = 1
) -> PrefixCache:
    return PrefixCache(kv_tokens=kv_tokens, state_slots=state_slots, state_mode=mode, max_states_per_path=cap)


def tokens_of(pieces: Sequence[Piece]) -> int:
    return sum(tokens for _, tokens in pieces)


def admit(store: PrefixCache, sought: Sought, tokens: int, output: int) -> Lease | None:
    """Admit a prompt whole: its KV and slots are taken."""
    lease = store.acquire(sought, tokens, output + 1)
    if lease is not None:
        store.settle(lease, tokens)
    return lease


def decode(store: PrefixCache, lease: Lease, steps: int) -> None:
    """Take the KV of `steps` decode steps."""
    store.take(steps)
    lease.private_tokens += steps


def turn(store: PrefixCache, prompt: Sequence[Piece], reply: Sequence[Piece] = (("reply", 10),)) -> int:
    """Run one request to its end and return its hit."""
    tokens, output = tokens_of(prompt), tokens_of(reply)
    sought = Sought(prompt)
    lease = admit(store, sought, tokens, output)
    assert lease is not None
    store.commit(lease, sought, lease.cached_tokens, tokens, last=True)
    decode(store, lease, output - 1)
    store.finish(lease, sought, reply, tokens, tokens + output - 1)
    return lease.cached_tokens
