"""What is remembered between requests, rule by rule; the figures of extra_buffer are those of a real SGLang 0.5.23."""

from collections.abc import Sequence

import pytest
from sim_cache_helpers import admit, cache, decode, tokens_of, turn

from agentbatch.sim.cache import PrefixCache
from agentbatch.sim.match import Sought
from agentbatch.sim.radix import Piece

# --- no_buffer: states at the exact end of a prefill and of a request


def test_an_identical_prompt_misses_and_an_extended_one_hits() -> None:
    store = cache()
    prompt = [("p", 1000)]
    assert turn(store, prompt, [("r", 100)]) == 0
    assert turn(store, [*prompt, ("r", 100), ("more", 50)]) == 1099  # the last output token has no state yet
    assert turn(store, prompt, [("r", 100)]) == 0  # the state at 1000 is behind the last prompt token


def test_a_shared_system_prompt_never_hits_by_itself() -> None:
    store = cache()
    assert [turn(store, [("system", 1000), (f"user {k}", 50)]) for k in range(3)] == [0, 0, 0]
    turn(store, [("system", 1000)], [("ready", 1)])  # leaves a state right where they part
    assert turn(store, [("system", 1000), ("user 9", 50)]) == 1000


def test_the_path_keeps_the_states_of_its_prefill_and_of_its_end() -> None:
    def states_after_turns(cap: int | None) -> int:
        store = cache(cap=cap, state_slots=100)
        conversation: list[Piece] = [("system", 640)]
        for number in range(6):
            conversation.append((f"user {number}", 64))
            turn(store, conversation, [(f"reply {number}", 64)])
            conversation.append((f"reply {number}", 64))
        assert store.states is not None
        return store.states.cached

    assert states_after_turns(None) == 12
    assert states_after_turns(1) == 2  # the former is locked while the latter is left
    assert states_after_turns(5) == 5


def test_a_fork_keeps_its_state() -> None:
    store = cache(cap=None, state_slots=100)
    turn(store, [("system", 640)], [("ready", 1)])
    for name in "ab":
        turn(store, [("system", 640), (name, 64)], [(f"{name}'s", 300)])
    store.max_states_per_path = 1
    for name in "ab":
        assert turn(store, [("system", 640), (name, 64), (f"{name}'s", 300), ("on", 9)]) == 1003
        assert states_of(store, [("system", 640), (name, 64), (f"{name}'s", 300), ("on", 9), ("reply", 10)]) == [
            640, 1013, 1022,
        ]  # fmt: skip
    assert turn(store, [("system", 640), ("c", 64)]) == 640


def test_a_running_request_holds_one_slot_and_locks_one_state() -> None:
    store = cache(state_slots=3)
    sought = Sought([("p", 640)])
    lease = admit(store, sought, 640, 64)
    assert lease is not None
    assert store.states is not None
    assert (store.states.held, store.states.locked) == (1, 0)
    store.commit(lease, sought, 0, 640, last=True)
    assert (store.states.held, store.states.cached, store.states.locked) == (1, 1, 1)
    decode(store, lease, 63)
    store.finish(lease, sought, [("r", 64)], 640, 703)
    assert (store.states.held, store.states.cached, store.states.locked) == (0, 2, 0)


def test_chunks_leave_states_at_their_last_whole_piece() -> None:
    store = cache(cap=None)
    sought = Sought([("a", 300), ("b", 300), ("c", 100)])
    lease = store.acquire(sought, 700, 11)
    assert lease is not None
    for start, end in ((0, 256), (256, 512), (512, 700)):
        store.settle(lease, end)
        store.commit(lease, sought, start, end, last=end == 700)
    assert sorted(state.depth for node in store.tree.nodes() for state in node.states) == [300, 700]


# --- extra_buffer: the grid of 64 after a prefill, that of 256 while decoding, branches


def test_extended_and_repeated_prompts_hit_as_measured() -> None:
    def hits(first: int, output: int, *then: int) -> list[int]:
        store = cache(mode="extra_buffer", cap=None)
        prompt: list[Piece] = [("p", first)]
        turn(store, prompt, [("r", output)])
        found = []
        for number, more in enumerate(then):
            prompt = [*prompt, ("r", output), (f"more {number}", more)]
            found.append(turn(store, prompt, [("short", 1)]))
        return found

    assert hits(1000, 10, 50) == [960]
    assert hits(1000, 300, 50) == [1280]
    store = cache(mode="extra_buffer")
    assert [turn(store, [("p", 1000)], [("r", 10)]) for _ in range(2)] == [0, 960]
    grown: list[Piece] = [("p", 1000)]
    assert turn(store := cache(mode="extra_buffer"), grown, [("r", 1)]) == 0
    assert turn(store, [*grown, ("r", 1), ("more", 30)], [("r2", 1)]) == 960  # 71 tokens to compute
    assert turn(store, [*grown, ("r", 1), ("more", 30), ("r2", 1), ("on", 30)], [("r3", 1)]) == 1024


def test_a_branch_takes_the_place_of_the_tail_as_measured() -> None:
    store = cache(mode="extra_buffer", cap=None)
    hits = {}
    for name in "xyz":
        hits[name] = turn(store, [("A", 500), (name, 500)], [(f"{name}'s", 10)])
    assert hits == {"x": 0, "y": 0, "z": 448}  # y leaves its state at 448, and none at 960
    for name in "yzx":
        hits[name] = turn(store, [("A", 500), (name, 500), (f"{name}'s", 10), ("on", 100)], [("end", 10)])
    assert hits == {"y": 448, "z": 960, "x": 960}


def test_text_without_a_state_is_not_kept() -> None:
    store = cache(mode="extra_buffer")
    turn(store, [("p", 40)], [("r", 100)])
    assert (store.tree.tokens, store.free_tokens) == (0, 100_000)
    turn(store, [("p", 40), ("r", 100), ("q", 50)], [("r2", 60)])
    assert store.tree.tokens == 140  # to 128, the piece across it whole; the output did not reach 256
    turn(store, [("p", 40), ("r", 100), ("q", 50), ("r2", 60), ("s", 9)], [("r3", 9)])
    assert store.tree.tokens == 259  # 131 more to compute: to 256, which lies in the last piece


def test_slots_held_follow_the_mode() -> None:
    for mode, held in (("no_buffer", 1), ("extra_buffer", 3), ("extra_buffer_lazy", 2)):
        store = cache(mode=mode)  # type: ignore[arg-type]
        assert admit(store, Sought([("p", 100)]), 100, 10) is not None
        assert store.states is not None
        assert store.states.held == held


# --- both pools


def test_the_last_prompt_token_is_always_computed() -> None:
    store = cache(state_slots=None)
    prompt = [("p", 128)]
    assert [turn(store, prompt), turn(store, prompt)] == [0, 127]
    hybrid = cache(mode="extra_buffer")
    assert [turn(hybrid, prompt, [("r", 1)]), turn(hybrid, prompt, [("r", 1)])] == [0, 0]


def test_a_pure_attention_model_hits_wherever_kv_is() -> None:
    store = cache(state_slots=None)
    turn(store, [("system", 1001), ("one", 50)])
    assert turn(store, [("system", 1001), ("two", 50)]) == 1001


def test_states_are_evicted_by_last_use_and_take_an_idle_leaf_along() -> None:
    store = cache(state_slots=4)
    for name in "ab":
        turn(store, [(name, 640)], [(f"{name}'s", 64)])
    assert store.states is not None
    assert (store.states.cached, store.evicted_states) == (4, 0)
    assert turn(store, [("a", 640), ("a's", 64), ("again", 64)], [("r", 9)]) == 703  # needs a slot of its own
    assert turn(store, [("b", 640), ("b's", 64), ("x", 9)], [("r", 9)]) == 703
    assert store.evicted_tokens == 0  # a's first state was the oldest, on a node with text below it
    turn(store, [("c", 640)], [("c's", 64)])
    turn(store, [("d", 640)], [("d's", 64)])
    assert turn(store, [("a", 640), ("a's", 64), ("again", 64), ("r", 9), ("x", 9)]) == 0
    assert store.evicted_tokens > 0


def test_an_idle_prefix_gives_way_oldest_first() -> None:
    store = cache(kv_tokens=1000, state_slots=None)
    turn(store, [("a", 300)])
    turn(store, [("b", 300)])
    turn(store, [("a", 300), ("reply", 10), ("a2", 20)])
    turn(store, [("c", 400)])  # 650 are cached: b must go, and a2's leaf is younger
    assert turn(store, [("a", 300), ("x", 1)]) == 300
    assert turn(store, [("b", 300), ("x", 1)]) == 0


def test_text_below_the_last_state_ages_however_often_it_is_matched() -> None:
    def kept(states: int | None) -> bool:
        store = cache(kv_tokens=1000, state_slots=states)
        turn(store, [("a", 300)])
        if store.states is not None:
            store.states.make_room(states or 0, store.states.forget)
        turn(store, [("b", 300)])
        store.hit_tokens(Sought([("a", 300), ("reply", 10), ("x", 1)]), 311)
        turn(store, [("c", 390)])
        return store.tree.descend([("a", 300), ("reply", 10)])[1] == 2

    assert kept(None)
    assert not kept(10)


def test_a_twin_frees_its_duplicate_tokens_when_its_prefill_ends() -> None:
    store = cache(state_slots=None)
    twins = [Sought([("p", 500)]) for _ in range(2)]
    leases = [admit(store, twin, 500, 10) for twin in twins]
    assert store.free_tokens == 100_000 - 2 * 500
    for lease, twin in zip(leases, twins, strict=True):
        assert lease is not None
        store.commit(lease, twin, 0, 500, last=True)
    assert store.free_tokens == 100_000 - 500


def test_a_request_without_a_state_holds_a_second_copy_until_its_prefill_ends() -> None:
    store = cache()
    turn(store, [("system", 1000), ("one", 50)])
    resident = store.tree.tokens
    sought = Sought([("system", 1000), ("two", 50)])
    lease = admit(store, sought, 1050, 10)
    assert lease is not None
    assert store.free_tokens == 100_000 - resident - 1050
    store.commit(lease, sought, 0, 1050, last=True)
    assert store.free_tokens == 100_000 - resident - 50


def test_a_refusal_leaves_no_trace() -> None:
    store = cache(kv_tokens=1000, state_slots=6)
    lease = admit(store, Sought([("a", 640)]), 640, 60)
    assert lease is not None
    assert admit(store, Sought([("b", 359)]), 359, 0) is None  # room must be left for one token more
    assert store.free_tokens == 360
    assert store.tree.locked_tokens == 0
    assert admit(store, Sought([("b", 358)]), 358, 0) is not None


def test_tokens_that_are_no_piece_are_given_back() -> None:
    store = cache(state_slots=None)
    sought = Sought([("p", 64)])
    lease = admit(store, sought, 90, 30)
    assert lease is not None
    store.commit(lease, sought, 0, 90, last=True)
    decode(store, lease, 29)
    store.finish(lease, sought, [("q", 40)], 90, 119)
    assert store.free_tokens == 100_000 - 104
    assert store.evictable_tokens == 104


def test_flush_with_requests_running_is_a_defect() -> None:
    store = cache()
    admit(store, Sought([("a", 64)]), 64, 1)
    with pytest.raises(AssertionError, match="running"):
        store.flush()


def states_of(store: PrefixCache, prompt: Sequence[Piece]) -> list[int]:
    """Depths of the states on a resident path."""
    node, _ = store.tree.descend(prompt)
    found = []
    while node.parent is not None:
        found += [state.depth for state in node.states]
        node = node.parent
    return sorted(found)


def test_pruning_goes_from_the_shallow_end() -> None:
    store = cache(cap=2)
    conversation: list[Piece] = [("p", 100)]
    for number in range(4):
        turn(store, conversation, [(f"r{number}", 100)])
        conversation += [(f"r{number}", 100), (f"u{number}", 100)]
    assert states_of(store, conversation) == [700, 799]
    assert tokens_of(conversation) == 900
