"""What is remembered between requests: the state rules of sglang.md by example, both pools' accounts by property."""

from collections.abc import Sequence

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentbatch.sim.cache import Lease, PrefixCache
from agentbatch.sim.radix import Piece

PIECES: list[Piece] = [("a", 1), ("b", 30), ("c", 64), ("d", 100), ("e", 200)]


def cache(
    *, kv_tokens: int = 100_000, state_slots: int | None = 30, slots_per_request: int = 3, cap: int | None = 1
) -> PrefixCache:
    return PrefixCache(kv_tokens=kv_tokens, state_slots=state_slots, slots_per_request=slots_per_request,
                       max_states_per_path=cap)


def tokens_of(pieces: Sequence[Piece]) -> int:
    return sum(tokens for _, tokens in pieces)


def turn(store: PrefixCache, prompt: Sequence[Piece], reply: Sequence[Piece] = (("reply", 10),)) -> int:
    """Run one request to its end and return its hit."""
    lease = store.acquire(prompt, tokens_of(prompt), tokens_of(reply))
    assert lease is not None
    store.commit(lease, prompt)
    store.finish(lease, [*prompt, *reply])
    return lease.cached_tokens


def test_an_identical_prompt_misses_and_an_extended_one_hits() -> None:
    store = cache()
    prompt = [("p", 1000)]
    assert turn(store, prompt, [("r", 100)]) == 0
    assert turn(store, [*prompt, ("r", 100), ("more", 50)]) == 1088  # 1100 on the grid
    assert cache_hits_twice(prompt) == [0, 0]


def cache_hits_twice(prompt: Sequence[Piece]) -> list[int]:
    store = cache()
    return [turn(store, prompt, [("r", 100)]) for _ in range(2)]


def test_a_shared_system_prompt_hits_from_the_third_trajectory_on() -> None:
    store = cache()
    hits = [turn(store, [("system", 1000), (f"user {k}", 50)]) for k in range(4)]
    # the second one's prefill finds KV without a state there, and leaves one
    assert hits == [0, 0, 960, 960]


def test_the_last_prompt_token_is_always_computed() -> None:
    store = cache(state_slots=None)
    prompt = [("p", 128)]
    assert [turn(store, prompt), turn(store, prompt)] == [0, 127]
    hybrid = cache()
    turn(hybrid, [("p", 100)], [("r", 28)])
    assert turn(hybrid, [("p", 100), ("r", 28)]) == 0  # a state at 128 exists, the prompt ends there
    assert turn(hybrid, [("p", 100), ("r", 28), ("x", 1)]) == 128


def test_a_pure_attention_model_hits_wherever_kv_is() -> None:
    store = cache(state_slots=None)
    turn(store, [("system", 1001), ("one", 50)])
    assert turn(store, [("system", 1001), ("two", 50)]) == 1001


def test_only_the_latest_state_of_a_path_stays_and_forks_do() -> None:
    def states_after_turns(cap: int | None) -> int:
        store = cache(cap=cap)
        turn(store, [("system", 640), ("other", 64)])
        turn(store, [("system", 640), ("another", 64)])  # leaves the fork's state
        conversation: list[Piece] = [("system", 640)]
        for number in range(6):
            conversation.append((f"user {number}", 64))
            turn(store, conversation, [(f"reply {number}", 64)])
            conversation.append((f"reply {number}", 64))
        assert store.states is not None
        return store.states.cached

    # the fork's, one for each of the two others, and the conversation's
    assert states_after_turns(None) == 1 + 2 + 6
    assert states_after_turns(1) == 1 + 2 + 1


def test_the_state_a_request_started_from_is_one_of_its_slots() -> None:
    store = cache(state_slots=3)
    assert turn(store, [("p", 640)], [("r", 64)]) == 0
    assert turn(store, [("p", 640), ("r", 64), ("u", 64)], [("r2", 64)]) == 704  # 1 locked + 2 taken


def test_states_are_evicted_by_last_use_and_take_an_idle_leaf_along() -> None:
    store = cache(state_slots=5, slots_per_request=3)
    for name in "abc":
        turn(store, [(name, 640)], [("r", 64)])
    assert store.states is not None
    assert (store.states.cached, store.evicted_states) == (3, 0)
    turn(store, [("a", 640), ("r", 64), ("again", 64)])  # a's state moves on
    turn(store, [("d", 640)], [("r", 64)])  # needs three of five slots, and b's is the oldest
    assert (store.evicted_states, store.evicted_tokens) == (1, 64)
    assert turn(store, [("a", 640), ("r", 64), ("again", 64), ("reply", 10), ("on", 64)]) == 768
    assert turn(store, [("b", 640), ("r", 64), ("again", 64)]) == 0


def test_an_idle_prefix_gives_way_oldest_first() -> None:
    store = cache(kv_tokens=1000, state_slots=None)
    turn(store, [("a", 300)])
    turn(store, [("b", 300)])
    turn(store, [("a", 300), ("reply", 10), ("a2", 20)])
    turn(store, [("c", 400)])  # 650 are cached: b must go, and a2's leaf is younger
    assert turn(store, [("a", 300), ("x", 1)]) == 300
    assert turn(store, [("b", 300), ("x", 1)]) == 0


def test_a_twin_frees_its_duplicate_tokens_when_its_prefill_ends() -> None:
    store = cache(state_slots=None)
    prompt = [("p", 500)]
    leases = [store.acquire(prompt, 500, 10) for _ in range(2)]
    assert store.free_tokens == 100_000 - 2 * 510
    for lease in leases:
        assert lease is not None
        store.commit(lease, prompt)
    assert store.free_tokens == 100_000 - 500 - 2 * 10


def test_a_refusal_leaves_no_trace() -> None:
    store = cache(kv_tokens=1000, state_slots=6)
    lease = store.acquire([("a", 640)], 640, 60)
    assert lease is not None
    assert store.acquire([("b", 300)], 300, 1) is None
    assert store.free_tokens == 300
    assert store.tree.locked_tokens == 0
    store.release(lease)
    assert store.free_tokens == 1000


def test_tokens_that_are_no_piece_are_given_back() -> None:
    store = cache(state_slots=None)
    lease = store.acquire([("p", 64)], 90, 30)
    assert lease is not None
    store.commit(lease, [("p", 64)])
    store.finish(lease, [("p", 64), ("q", 40)])
    assert store.free_tokens == 100_000 - 104
    assert store.evictable_tokens == 104


def test_flush_with_requests_running_is_a_defect() -> None:
    store = cache()
    store.acquire([("a", 64)], 64, 1)
    with pytest.raises(AssertionError, match="running"):
        store.flush()


class Pools(RuleBasedStateMachine):
    """Random requests in any interleaving; after each step every account is counted anew."""

    def __init__(self) -> None:
        super().__init__()
        self.store = cache(kv_tokens=1500, state_slots=8, slots_per_request=3, cap=1)
        self.fresh: list[tuple[Lease, list[Piece]]] = []
        self.committed: list[tuple[Lease, list[Piece]]] = []

    @rule(prompt=st.lists(st.sampled_from(PIECES), min_size=1, max_size=6), tail=st.integers(0, 63),
          output=st.integers(1, 80))
    def acquire(self, prompt: list[Piece], tail: int, output: int) -> None:
        tokens = tokens_of(prompt) + tail
        if tokens + output > 1500:
            return
        lease = self.store.acquire(prompt, tokens, output)
        if lease is None:
            assert self.fresh or self.committed  # alone, a request that can fit at all does
            return
        assert lease.cached_tokens % 64 == 0
        assert lease.cached_tokens < tokens
        assert lease.cached_tokens <= lease.node.end
        self.fresh.append((lease, prompt))

    @precondition(lambda self: self.fresh)
    @rule()
    def commit(self) -> None:
        lease, prompt = self.fresh.pop(0)
        self.store.commit(lease, prompt)
        self.committed.append((lease, prompt))

    @precondition(lambda self: self.committed)
    @rule(data=st.data(), reply=st.sampled_from(["r", "s"]))
    def finish(self, data: st.DataObject, reply: str) -> None:
        lease, prompt = self.committed.pop(data.draw(st.integers(0, len(self.committed) - 1)))
        pieces: list[Piece] = [*prompt, (reply, lease.private_tokens)]
        self.store.finish(lease, pieces)

    @precondition(lambda self: self.fresh or self.committed)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        pool = self.fresh or self.committed
        self.store.release(pool.pop(data.draw(st.integers(0, len(pool) - 1)))[0])

    @precondition(lambda self: not self.fresh and not self.committed)
    @rule()
    def flush(self) -> None:
        self.store.flush()
        assert self.store.free_tokens == 1500

    @invariant()
    def accounts_agree(self) -> None:
        store, leases = self.store, [lease for lease, _ in self.fresh + self.committed]
        states = store.states
        assert states is not None
        nodes = list(store.tree.nodes())
        found = [state for node in nodes for state in node.states]
        assert store.private_tokens == sum(lease.private_tokens for lease in leases)
        assert store.tree.tokens == sum(node.end - node.start for node in nodes)
        assert store.tree.locked_tokens == sum(node.end - node.start for node in nodes if node.active)
        assert store.free_tokens >= 0
        assert store.evictable_tokens >= 0
        assert states.held == sum(lease.slots for lease in leases)
        assert states.cached == len(found)
        assert states.locked == sum(1 for state in found if state.locks)
        assert states.free >= 0
        assert sum(state.locks for state in found) == sum(1 for lease in leases if lease.state is not None)
        for node in nodes:
            depths = [state.depth for state in node.states]
            assert depths == sorted(set(depths))
            assert all(node.start < depth <= node.end and depth % 64 == 0 for depth in depths)
            assert all(state.node is node for state in node.states)

    def teardown(self) -> None:
        for lease, _ in self.fresh + self.committed:
            self.store.release(lease)
        assert self.store.states is not None
        assert self.store.states.held == self.store.states.locked == 0
        assert self.store.private_tokens == self.store.tree.locked_tokens == 0
        everything = self.store.acquire([("z", 1)], 1, 1499)  # evicts all there is
        assert everything is not None
        assert self.store.free_tokens == 0


TestPools = Pools.TestCase
