"""Random requests in any interleaving: both pools' accounts, and kept matches against matching anew."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sim_cache_helpers import admit, cache, decode, tokens_of

from agentbatch.sim.cache import Lease
from agentbatch.sim.match import Sought
from agentbatch.sim.radix import Piece
from agentbatch.sim.states import StateMode
from agentbatch.sim.transcript import Transcript

PIECES: list[Piece] = [("a", 1), ("b", 30), ("c", 64), ("d", 100), ("e", 200)]
POOL = 1500


class Running:
    def __init__(self, lease: Lease, sought: Sought, tokens: int, text: Transcript | None) -> None:
        self.lease, self.sought, self.tokens, self.text = lease, sought, tokens, text
        self.computed = lease.cached_tokens
        self.decoded = 0


class Pools(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.running: list[Running] = []
        self.waiting: list[Sought] = []
        self.texts = [Transcript([("a", 1), ("c", 64)]) for _ in range(3)]
        self.store = cache()

    @initialize(mode=st.sampled_from(["no_buffer", "extra_buffer", None]), cap=st.sampled_from([1, 3, None]))
    def choose(self, mode: StateMode | None, cap: int | None) -> None:
        self.store = cache(kv_tokens=POOL, state_slots=None if mode is None else 10, mode=mode or "no_buffer", cap=cap)

    @rule(prompt=st.lists(st.sampled_from(PIECES), min_size=1, max_size=6), tail=st.integers(0, 63))
    def arrive(self, prompt: list[Piece], tail: int) -> None:
        self.begin(Sought(prompt), tokens_of(prompt) + tail, None)

    @rule(which=st.integers(0, 2), more=st.lists(st.sampled_from(PIECES), max_size=2))
    def go_on(self, which: int, more: list[Piece]) -> None:
        text = self.texts[which]
        text.extend(more)
        prompt = text.upto()
        self.begin(Sought(prompt), prompt.tokens, text)

    @rule(which=st.integers(0, 2), steps=st.integers(0, 29))
    def take_a_turn(self, which: int, steps: int) -> None:
        text = self.texts[which]
        prompt, reply = text.upto(), ("r", steps + 1)
        if prompt.tokens + 32 > POOL:
            return
        sought = Sought(prompt)
        lease = admit(self.store, sought, prompt.tokens, 30)
        if lease is None:
            return
        self.store.commit(lease, sought, lease.cached_tokens, prompt.tokens, last=True)
        decode(self.store, lease, steps)
        self.store.finish(lease, sought, [reply], prompt.tokens, prompt.tokens + steps)
        text.extend([reply])

    def begin(self, sought: Sought, tokens: int, text: Transcript | None) -> None:
        if tokens + 32 > POOL or len(self.running) == 2:
            return
        lease = admit(self.store, sought, tokens, 30)
        if lease is None:
            assert self.running  # alone, a request that can fit at all does
            return
        assert lease.cached_tokens < tokens
        assert lease.cached_tokens <= lease.node.end
        self.running.append(Running(lease, sought, tokens, text))

    @rule(prompt=st.lists(st.sampled_from(PIECES), max_size=6))
    def wait(self, prompt: list[Piece]) -> None:
        self.waiting.append(Sought(prompt))

    @rule(which=st.integers(0, 2), more=st.lists(st.sampled_from(PIECES), max_size=2))
    def wait_in_a_conversation(self, which: int, more: list[Piece]) -> None:
        self.texts[which].extend(more)
        self.waiting.append(Sought(self.texts[which].upto()))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def wait_no_more(self, data: st.DataObject) -> None:
        self.store.matcher.drop(self.waiting.pop(data.draw(st.integers(0, len(self.waiting) - 1))))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), part=st.integers(1, 200))
    def prefill(self, data: st.DataObject, part: int) -> None:
        one = self.running[data.draw(st.integers(0, len(self.running) - 1))]
        if one.computed < one.tokens:
            end = min(one.tokens, one.computed + part)
            self.store.commit(one.lease, one.sought, one.computed, end, last=end == one.tokens)
            one.computed = end

    @precondition(lambda self: any(one.computed == one.tokens for one in self.running))
    @rule(data=st.data(), steps=st.integers(0, 29), reply=st.sampled_from(["r", "s"]))
    def finish(self, data: st.DataObject, steps: int, reply: str) -> None:
        ready = [one for one in self.running if one.computed == one.tokens]
        one = ready[data.draw(st.integers(0, len(ready) - 1))]
        self.running.remove(one)
        if self.store.room_tokens < steps:
            self.store.release(one.lease)
            return
        decode(self.store, one.lease, steps)
        piece = (reply, steps + 1)
        self.store.finish(one.lease, one.sought, [piece], one.tokens, one.tokens + steps)
        if one.text is not None and one.sought.count == len(one.text.pieces):
            one.text.extend([piece])

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self.store.release(self.running.pop(data.draw(st.integers(0, len(self.running) - 1))).lease)

    @precondition(lambda self: self.store.tree.tokens)
    @rule(tokens=st.integers(0, POOL), slots=st.integers(0, 10))
    def evict(self, tokens: int, slots: int) -> None:
        self.store.make_free(min(tokens, self.store.room_tokens))
        states = self.store.states
        if states is not None:
            states.make_room(min(slots, states.available), self.store._evict_state)

    @precondition(lambda self: not self.running)
    @rule()
    def flush(self) -> None:
        self.store.flush()
        self.waiting.clear()
        assert self.store.free_tokens == POOL

    @invariant()
    def kept_matches_are_those_of_matching_anew(self) -> None:
        for sought in self.waiting:
            kept, anew = self.store.matcher.keep(sought), self.store.matcher.anew(sought)
            for part in ("node", "index", "resume", "resume_index", "best"):
                assert getattr(kept, part) is getattr(anew, part) or getattr(kept, part) == getattr(anew, part)

    @invariant()
    def nothing_watches_for_those_who_wait_no_more(self) -> None:
        kept = {sought.match for sought in self.waiting}
        for node in [self.store.tree.root, *self.store.tree.nodes()]:
            assert (node.watchers or set()) <= kept

    @invariant()
    def accounts_agree(self) -> None:
        store, leases = self.store, [one.lease for one in self.running]
        states, nodes = store.states, list(store.tree.nodes())
        assert store.private_tokens == sum(lease.private_tokens for lease in leases)
        assert store.tree.tokens == sum(node.end - node.start for node in nodes)
        assert store.tree.locked_tokens == sum(node.end - node.start for node in nodes if node.active)
        assert min(store.free_tokens, store.evictable_tokens) >= 0
        assert store.room_tokens == store.free_tokens + store.evictable_tokens
        for node in nodes:
            assert all(state.node is node for state in node.states)
            assert all(node.start < state.depth <= node.end for state in node.states)
        if states is not None:
            found = [state for node in nodes for state in node.states]
            assert states.held == sum(lease.slots for lease in leases)
            assert states.cached == len(found)
            assert states.locked == sum(1 for state in found if state.locks)
            assert states.free >= 0
            assert sum(state.locks for state in found) == sum(1 for lease in leases if lease.state is not None)

    def teardown(self) -> None:
        for one in self.running:
            self.store.release(one.lease)
        assert self.store.states is None or self.store.states.held == self.store.states.locked == 0
        assert self.store.private_tokens == self.store.tree.locked_tokens == 0
        everything = admit(self.store, Sought([("z", 1)]), POOL - 2, 0)  # evicts all there is
        assert everything is not None
        assert self.store.tree.tokens <= 2


TestPools = Pools.TestCase
TestPools.settings = settings(stateful_step_count=60)
